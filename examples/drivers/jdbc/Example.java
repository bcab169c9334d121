/*
 * Example.java: idem from pgjdbc.
 *
 *     PGUSER=... PGPASSWORD=... java -cp postgresql.jar:. Example URL
 *
 * With a pooler in transaction mode the URL has prepareThreshold=0, and the
 * pooler ignores the startup parameter extra_float_digits.
 */
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.Set;

public class Example {
	/* What is worth the same transaction once more.  What is not: ID400, ID404,
	 * ID409, ID412, ID422, ID428 and ID500 say the same every time. */
	private static final Set<String> AGAIN = Set.of("40001", "40P01");

	record Result(int code, String response) {}
	record Answer(boolean run, String outcome, Long fence, int code, String response, int retryAfter) {
		@Override public String toString() {
			return code + " " + response + (run ? "" : " (replayed)");
		}
	}
	interface Work { Result run(Connection db, Long fence) throws Exception; }
	interface Pause { void run(int seconds) throws Exception; }
	@SuppressWarnings("serial")
	static class Mismatch extends Exception {}
	@SuppressWarnings("serial")
	static class Lost extends Exception {}

	/*
	 * Runs work once for the key, and returns its answer, also to repeats.  Without
	 * a lease it runs in the transaction of the claim; with one, between two
	 * transactions.  The connection is in autocommit.
	 */
	static Answer once(Connection db, String key, String request, Work work,
			String lease, String wait, Pause pause) throws Exception {
		for (int tries = 0; tries < 10; tries++) {
			Answer answer;
			try {
				db.setAutoCommit(lease != null);
				answer = attempt(db, key, request, work, lease, wait);
				if (lease == null)
					db.commit();
			} catch (Lost lost) {
				continue;		// another holder has taken over, and has the answer
			} catch (SQLException error) {
				if (lease == null)
					db.rollback();
				if (AGAIN.contains(error.getSQLState()))
					continue;
				throw error;
			} finally {
				db.setAutoCommit(true);
			}
			if (answer.outcome().equals("mismatch"))
				throw new Mismatch();
			if (!answer.outcome().equals("in_progress"))
				return answer;
			pause.run(answer.retryAfter());
		}
		throw new Exception("no answer");
	}

	static Answer once(Connection db, String key, String request, Work work) throws Exception {
		return once(db, key, request, work, null, "2 s", seconds -> Thread.sleep(1000L * seconds));
	}

	private static Answer attempt(Connection db, String key, String request, Work work,
			String lease, String wait) throws Exception {
		Answer claim;
		try (PreparedStatement s = db.prepareStatement("SELECT run, outcome, fence, code, response, retry_after "
				+ "FROM idem_claim(?, ?::jsonb, lease => ?::interval, wait => ?::interval)")) {
			s.setString(1, key);
			s.setString(2, request);
			s.setString(3, lease);
			s.setString(4, wait);
			ResultSet row = s.executeQuery();
			row.next();
			claim = new Answer(row.getBoolean(1), row.getString(2), row.getObject(3, Long.class), row.getInt(4),
				row.getString(5), row.getInt(6));
		}
		if (!claim.run())
			return claim;
		Result result = work.run(db, claim.fence());
		try (PreparedStatement s = db.prepareStatement(
				"SELECT idem_complete(?, ?::text, fence => ?, code => ?)")) {
			s.setString(1, key);
			s.setString(2, result.response());
			s.setObject(3, claim.fence(), java.sql.Types.BIGINT);
			s.setInt(4, result.code());
			s.execute();
		} catch (SQLException error) {
			if ("ID409".equals(error.getSQLState()))
				throw new Lost();
			throw error;
		}
		return new Answer(true, claim.outcome(), claim.fence(), result.code(), result.response(), 0);
	}

	private static void execute(Connection db, String sql) throws SQLException {
		try (PreparedStatement s = db.prepareStatement(sql)) {
			s.execute();
		}
	}

	private static long number(Connection db, String sql) throws SQLException {
		try (PreparedStatement s = db.prepareStatement(sql)) {
			ResultSet row = s.executeQuery();
			row.next();
			return row.getLong(1);
		}
	}

	private static String sqlstate(Connection db, String sql) {
		try {
			execute(db, sql);
			return "none";
		} catch (SQLException error) {
			return error.getSQLState();
		}
	}

	private static Work charge(int amount, String fails, int[] runs) {
		return (db, fence) -> {
			runs[0]++;
			long balance = number(db, "UPDATE account SET balance = balance - " + amount
				+ " WHERE id = 1 RETURNING balance");
			if (fails != null && runs[0] == 1)
				execute(db, "DO $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = '" + fails + "'; END $$");
			return new Result(201, "{\"balance\": " + balance + "}");
		};
	}

	private static Connection connect(String url) throws SQLException {
		return DriverManager.getConnection(url, System.getenv("PGUSER"), System.getenv("PGPASSWORD"));
	}

	public static void main(String[] args) throws Exception {
		try (Connection db = connect(args[0]); Connection other = connect(args[0])) {
			int[] runs = {0};

			System.out.println("first: " + once(db, "pay-1", "{\"amount\": 25}", charge(25, null, runs)));
			System.out.println("repeat: " + once(db, "pay-1", "{\"amount\": 25.0}", charge(25, null, runs)));
			try {
				once(db, "pay-1", "{\"amount\": 26}", charge(26, null, runs));
			} catch (Mismatch mismatch) {
				System.out.println("same key, other request: mismatch");
			}

			other.setAutoCommit(false);
			execute(other, "SELECT run FROM idem_claim('pay-2')");
			System.out.println("in progress: told to wait, then "
				+ once(db, "pay-2", "{}", charge(1, null, runs), null, "0 s", seconds -> {
					execute(other, "SELECT idem_complete('pay-2', 'theirs', code => 201)");
					other.commit();
				}));
			other.setAutoCommit(true);

			int n = 3;
			for (String code : new String[] {"40001", "40P01"}) {
				runs[0] = 0;
				Answer answer = once(db, "pay-" + n++, "{}", charge(10, code, runs));
				System.out.println(code + ": " + runs[0] + " runs, " + answer);
			}

			System.out.println("lost claim: " + once(db, "report", "{}", (d, f) -> {
				Thread.sleep(20);
				long fence = number(other, "SELECT fence FROM idem_claim('report', lease => '1 min')");
				execute(other, "SELECT idem_complete('report', 'the winner''s', fence => " + fence + ", code => 201)");
				return new Result(201, "too late");
			}, "1 ms", "2 s", seconds -> Thread.sleep(1000L * seconds)));

			System.out.println("stale version: "
				+ sqlstate(db, "UPDATE account SET balance = 0, version = 1 WHERE id = 1"));
			execute(db, "SELECT outcome FROM idem_fire('ticket', 1, 'close')");
			System.out.println("illegal transition: "
				+ sqlstate(db, "UPDATE ticket SET state = 'open' WHERE id = 1"));
			System.out.println("no key: " + sqlstate(db, "SELECT run FROM idem_claim(NULL)"));
			db.setAutoCommit(false);
			execute(db, "SELECT run FROM idem_claim('forgotten')");
			try {
				db.commit();
			} catch (SQLException error) {
				System.out.println("unfinished claim: " + error.getSQLState());
			}
			db.setAutoCommit(true);
			System.out.println("balance: " + number(db, "SELECT balance FROM account"));
		}
	}
}
