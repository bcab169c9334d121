-- The payment provider's database: somebody else's, on the other side of HTTP.
CREATE EXTENSION idem;
SELECT idem_grant('provider');
CREATE TABLE charge (
  id       int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  merchant text NOT NULL,
  card     text NOT NULL,
  amount   numeric(8,2) NOT NULL
);
GRANT SELECT, INSERT ON charge TO provider;
