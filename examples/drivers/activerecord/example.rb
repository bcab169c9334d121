# example.rb: idem from Active Record.
#
#     PGHOST=... PGDATABASE=... ruby example.rb
#
# In a web request Rails caches the answers of SELECT: the same statement, sent
# twice, does not reach the database a second time.  A claim has to reach it.
require 'active_record'

def rows(sql, *values)
  ActiveRecord::Base.uncached do
    ActiveRecord::Base.connection.select_all(ActiveRecord::Base.sanitize_sql([sql, *values])).to_a
  end
end

# Runs the block once for the key; its answer is also the repeats'.
def once(key, request)
  ActiveRecord::Base.transaction do
    claim = rows('SELECT run, outcome, response, code, retry_after FROM idem_claim(?, ?::jsonb)',
                 key, request.to_json).first
    next claim unless claim['run']

    code, response = yield
    rows('SELECT idem_complete(?, ?::text, code => ?)', key, response, code)
    claim.merge('code' => code, 'response' => response)
  end
end

def sqlstate
  yield
  'none'
rescue ActiveRecord::StatementInvalid => e
  e.cause.result.error_field(PG::PG_DIAG_SQLSTATE)
end

def show(claim)
  "#{claim['code']} #{claim['response']}#{' (replayed)' unless claim['run']}"
end

# A pooler in transaction mode needs prepared_statements and advisory_locks off.
ActiveRecord::Base.establish_connection(
  adapter: 'postgresql', host: ENV['PGHOST'], port: ENV['PGPORT'], username: ENV['PGUSER'],
  database: ENV['PGDATABASE'], prepared_statements: ARGV[0] != 'pooled', advisory_locks: false
)
class Account < ActiveRecord::Base
  self.table_name = 'account'
  self.locking_column = 'version'
end

# as Rails does around each request
ActiveRecord::Base.connection
ActiveRecord::Base.cache do
  pay = lambda do
    once('pay-1', { amount: 25 }) do
      Account.where(id: 1).update_all('balance = balance - 25')
      [201, 'paid']
    end
  end
  puts "first: #{show(pay.call)}"
  puts "repeat: #{show(pay.call)}"

  twice = Array.new(2) { ActiveRecord::Base.connection.select_value("SELECT idem_once('cached')") }
  puts "from the cache: first #{twice[0]}, again #{twice[1]}"
  twice = Array.new(2) { rows('SELECT idem_once(?) AS first', 'not cached').first['first'] }
  puts "uncached: first #{twice[0]}, again #{twice[1]}"
end

one, other = Account.find(1), Account.find(1)
one.update!(balance: 70)
begin
  other.update!(balance: 80)
rescue ActiveRecord::StaleObjectError
  puts 'stale version: StaleObjectError'
end
puts "stale version, in SQL: #{sqlstate { Account.where(id: 1).update_all(balance: 0, version: 1) }}"
puts "unfinished claim: #{sqlstate { ActiveRecord::Base.transaction { rows("SELECT run FROM idem_claim('x')") } }}"
puts "balance: #{Account.find(1).balance}"
