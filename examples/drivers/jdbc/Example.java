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
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

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
	static class Lost extends SQLException {}

	/*
	 * Runs work once for the key, and returns its answer, also to repeats.  Without
	 * a lease it runs in the transaction of the claim; with one, between two
	 * transactions.  The connection is in autocommit.
	 */
	static Answer once(Connection db, String key, String request, Work work,
			String lease, String wait, String isolation, Pause pause) throws Exception {
		for (int tries = 0; tries < 10; tries++) {
			Answer answer;
			try {
				db.setAutoCommit(lease != null);
				/* setTransactionIsolation() is for the session, which a pooler does not keep */
				if (lease == null)
					execute(db, "SET TRANSACTION ISOLATION LEVEL " + isolation);
				answer = attempt(db, key, request, work, lease, wait);
				if (lease == null)
					db.commit();
			} catch (SQLException error) {
				if (lease == null)
					db.rollback();
				if (error instanceof Lost || AGAIN.contains(error.getSQLState()))
					continue;		// rolled back, or lost to another holder, who has the answer
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
		return once(db, key, request, work, null, "2 s", "READ COMMITTED", seconds -> Thread.sleep(1000L * seconds));
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

	/* The scenario. */

	private static final AtomicInteger runs = new AtomicInteger();

	private static long add(Connection db, int account, int amount) throws SQLException {
		return number(db, "UPDATE account SET balance = balance + " + amount + " WHERE id = " + account
			+ " RETURNING balance");
	}

	private static Work charge(int amount) {
		return (db, fence) -> new Result(201, "{\"balance\": " + add(db, 1, -amount) + "}");
	}

	private static long total(Connection db) throws SQLException {
		return number(db, "SELECT sum(balance) FROM account");
	}

	/* Both read the sum and change a row each: one of the two has to start anew. */
	private static Answer serializationFailure(Connection one, Connection other) throws Exception {
		return once(one, "pay-3", "{}", (db, fence) -> {
			if (total(db) < 10)
				return new Result(402, "too little");
			if (runs.incrementAndGet() == 1) {
				other.setAutoCommit(false);
				execute(other, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE");
				total(other);
				add(other, 2, -10);
				other.commit();
				other.setAutoCommit(true);
			}
			return charge(10).run(db, fence);
		}, null, "2 s", "SERIALIZABLE", seconds -> {});
	}

	/* Two transfers lock the same rows in opposite order: one is a deadlock's victim. */
	private static CompletableFuture<Answer> transfer(Connection one, CyclicBarrier both, String key,
			int from, int to, int amount) {
		boolean[] again = {false};
		return CompletableFuture.supplyAsync(() -> {
			try {
				return once(one, key, "{}", (db, fence) -> {
					runs.incrementAndGet();
					add(db, from, -amount);
					if (!again[0]) {
						again[0] = true;
						both.await(30, TimeUnit.SECONDS);
					}
					add(db, to, amount);
					return new Result(201, "moved");
				});
			} catch (Exception error) {
				throw new RuntimeException(error);
			}
		}, task -> new Thread(task).start());
	}

	private static Answer lostClaim(Connection one, Connection other) throws Exception {
		return once(one, "report", "{}", (db, fence) -> {
			runs.incrementAndGet();
			Thread.sleep(20);
			long theirs = number(other, "SELECT fence FROM idem_claim('report', lease => '1 min')");
			execute(other, "SELECT idem_complete('report', 'the winner''s', fence => " + theirs + ", code => 201)");
			return new Result(201, "too late");
		}, "1 ms", "2 s", null, seconds -> {});
	}

	/* What says the same every time is tried once, and leaves the key free. */
	private static String refused(Connection one, String sql) throws Exception {
		runs.set(0);
		try {
			once(one, "once", "{}", (db, fence) -> {
				runs.incrementAndGet();
				execute(db, sql);
				return new Result(200, "done");
			});
			return "none";
		} catch (SQLException error) {
			return error.getSQLState() + ", " + runs + " run";
		}
	}

	private static Connection connect(String url) throws SQLException {
		return DriverManager.getConnection(url, System.getenv("PGUSER"), System.getenv("PGPASSWORD"));
	}

	public static void main(String[] args) throws Exception {
		try (Connection db = connect(args[0]); Connection other = connect(args[0])) {
			System.out.println("first: " + once(db, "pay-1", "{\"amount\": 25}", charge(25)));
			System.out.println("repeat: " + once(db, "pay-1", "{\"amount\": 25.0}", charge(25)));
			try {
				once(db, "pay-1", "{\"amount\": 26}", charge(26));
			} catch (Mismatch mismatch) {
				System.out.println("same key, other request: mismatch");
			}

			other.setAutoCommit(false);
			execute(other, "SELECT run FROM idem_claim('pay-2')");
			System.out.println("in progress: told to wait, then "
				+ once(db, "pay-2", "{}", charge(1), null, "0 s", "READ COMMITTED", seconds -> {
					execute(other, "SELECT idem_complete('pay-2', 'theirs', code => 201)");
					other.commit();
				}));
			other.setAutoCommit(true);

			Answer spent = serializationFailure(db, other);
			System.out.println("40001: " + runs + " runs, " + spent);

			runs.set(0);
			CyclicBarrier both = new CyclicBarrier(2);
			CompletableFuture<Answer> there = transfer(db, both, "move-1", 1, 2, 5);
			CompletableFuture<Answer> back = transfer(other, both, "move-2", 2, 1, 15);
			CompletableFuture.allOf(there, back).get();
			System.out.println("40P01: " + (runs.get() > 2 ? "run again" : runs) + ", " + there.get() + ", " + back.get());

			runs.set(0);
			Answer report = lostClaim(db, other);
			System.out.println("lost claim: " + runs + " run, " + report);

			execute(db, "SELECT outcome FROM idem_fire('ticket', 1, 'close', key => 'close-1')");
			String[][] once = {
				{"stale version", "UPDATE account SET balance = 0, version = 1 WHERE id = 1"},
				{"illegal transition", "UPDATE ticket SET state = 'open' WHERE id = 1"},
				{"key of another event", "SELECT outcome FROM idem_fire('ticket', 2, 'close', key => 'close-1')"},
				{"no key", "SELECT run FROM idem_claim(NULL)"},
				{"unfinished claim", "SELECT run FROM idem_claim('forgotten')"}};
			for (String[] what : once)
				System.out.println(what[0] + ": " + refused(db, what[1]));
			System.out.println("balances: " + number(db, "SELECT balance FROM account WHERE id = 1")
				+ " " + number(db, "SELECT balance FROM account WHERE id = 2"));
		}
	}
}
