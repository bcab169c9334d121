/*
 * Verbs.java: runs verbs.txt with pgjdbc, and prints each answer.
 *
 *     java Verbs VERBS URL
 *
 * Statements are prepared on the server, or not, as prepareThreshold in URL says.
 * With stringtype=unspecified in it, every parameter is bound by setString.
 */
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Timestamp;
import java.sql.Types;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.postgresql.util.PGInterval;
import org.postgresql.util.PGobject;

public class Verbs {
	private static final Map<String, Object> last = new HashMap<>();

	private static void bindString(PreparedStatement s, int i, String kind, String value) throws SQLException {
		s.setString(i, switch (kind) {
			case "null" -> null;
			case "interval" -> value + " seconds";
			case "texts", "ints" -> "{" + value + "}";
			case "last" -> last.get(value).toString();
			default -> value.replace("\\n", "\n");
		});
	}

	private static void bind(Connection db, PreparedStatement s, int i, String kind, String value)
			throws SQLException {
		switch (kind) {
			case "null" -> s.setNull(i, Types.NULL);
			case "text" -> s.setString(i, value.replace("\\n", "\n"));
			case "int" -> s.setInt(i, Integer.parseInt(value));
			case "bigint" -> s.setLong(i, Long.parseLong(value));
			case "bool" -> s.setBoolean(i, value.equals("true"));
			case "json" -> {
				PGobject json = new PGobject();
				json.setType("jsonb");
				json.setValue(value);
				s.setObject(i, json);
			}
			case "interval" -> s.setObject(i, new PGInterval(value + " seconds"));
			case "time" -> s.setObject(i, OffsetDateTime.parse(value));
			case "texts" -> s.setArray(i, db.createArrayOf("text", value.split(",")));
			case "ints" -> s.setArray(i, db.createArrayOf("int", Stream.of(value.split(",")).map(Integer::valueOf).toArray()));
			case "last" -> s.setObject(i, last.get(value));
			default -> throw new IllegalArgumentException(kind);
		}
	}

	private static String show(Object value) {
		if (value == null)
			return "";
		if (value instanceof Boolean b)
			return b ? "t" : "f";
		return value instanceof Timestamp ? "time" : value.toString();
	}

	private static void run(Connection db, boolean strings, String line) throws SQLException {
		String[] parts = (line.split("##")[0] + " ").split("`");
		StringBuilder sql = new StringBuilder(parts[0]);

		for (int n = 2; n < parts.length; n += 2)
			sql.append('?').append(parts[n]);
		try (PreparedStatement s = db.prepareStatement(sql.toString())) {
			for (int n = 1; n < parts.length; n += 2) {
				String[] parameter = parts[n].split(" ", 2);
				if (strings)
					bindString(s, (n + 1) / 2, parameter[0], parameter.length > 1 ? parameter[1] : "");
				else
					bind(db, s, (n + 1) / 2, parameter[0], parameter.length > 1 ? parameter[1] : "");
			}
			if (!s.execute()) {
				System.out.println();
				return;
			}
			ResultSet found = s.getResultSet();
			List<String> rows = new ArrayList<>();
			while (found.next()) {
				List<String> row = new ArrayList<>();
				for (int n = 1; n <= found.getMetaData().getColumnCount(); n++) {
					row.add(show(found.getObject(n)));
					if (rows.isEmpty())
						last.put(found.getMetaData().getColumnLabel(n), found.getObject(n));
				}
				rows.add(String.join("|", row));
			}
			System.out.println(String.join("/", rows));
		} catch (SQLException error) {
			System.out.println("ERROR " + error.getSQLState());
			System.err.println(error.getMessage());
		}
	}

	public static void main(String[] args) throws Exception {
		try (Connection db = DriverManager.getConnection(args[1], System.getenv("PGUSER"), System.getenv("PGPASSWORD"))) {
			for (String line : Files.readAllLines(Path.of(args[0])))
				if (!line.isEmpty() && !line.startsWith("#"))
					run(db, args[1].contains("stringtype=unspecified"), line);
		}
	}
}
