-- The shop's database.  Run as a superuser or as the database's owner; the
-- server connects as role shop, which owns nothing.
CREATE EXTENSION idem;
SELECT idem_grant('shop');

CREATE TABLE product (id text PRIMARY KEY, name text NOT NULL, price numeric(8,2) NOT NULL);
INSERT INTO product VALUES
  ('tea', 'Green tea, 100 g', 8.50), ('cup', 'Porcelain cup', 12.00), ('pot', 'Cast iron pot', 49.00);

CREATE TABLE customer (name text PRIMARY KEY, address text NOT NULL, phone text NOT NULL,
                       version int NOT NULL DEFAULT 1);
INSERT INTO customer VALUES ('alice', '1 Lake Road', '555-0100'), ('bob', '9 Hill Street', '555-0101');
SELECT idem_attach_version('customer', 'version');

CREATE TABLE orders (
  id       int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  customer text NOT NULL REFERENCES customer,
  items    jsonb NOT NULL,
  total    numeric(8,2) NOT NULL,
  charges  int NOT NULL DEFAULT 0,       -- how often a charge was begun
  state    text NOT NULL DEFAULT 'placed'
);
SELECT idem_define('order', $$
stateDiagram-v2
    direction LR
    [*] --> placed
    placed --> paying : charge
    paying --> paid : settle
    paying --> placed : decline
    placed --> cancelled : cancel
    paid --> shipped : ship
    shipped --> [*]
    cancelled --> [*]
$$);
SELECT idem_attach('order', 'orders', 'state', history => true);

CREATE TABLE payment (order_id int NOT NULL REFERENCES orders, charge text NOT NULL, amount numeric(8,2) NOT NULL);

-- What is to be told to others, written with its cause, delivered at least once.
CREATE TABLE message (
  id           int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  body         jsonb NOT NULL,
  deliveries   int NOT NULL DEFAULT 0,
  acknowledged boolean NOT NULL DEFAULT false
);
CREATE TABLE mail (message_id int NOT NULL, recipient text NOT NULL, subject text NOT NULL);

GRANT SELECT ON ALL TABLES IN SCHEMA public TO shop;
GRANT INSERT, UPDATE ON customer, orders, payment, message, mail TO shop;
