"""example.py: idem from psycopg 3.

    PGHOST=... PGDATABASE=... python3 example.py [pooled]

"pooled" is for a pooler in transaction mode, where psycopg must not prepare.
"""
import sys
import threading
import time

import psycopg
from psycopg import IsolationLevel
from psycopg.rows import namedtuple_row
from psycopg.types.json import Jsonb

# What is worth the same transaction once more.  What is not: ID400, ID404,
# ID409, ID412, ID422, ID428 and ID500 say the same every time.
AGAIN = {'40001', '40P01'}


class Mismatch(Exception):
    """The key was used before for another request."""


def once(db, key, request, work, lease=None, wait='2 s', pause=time.sleep, tries=10):
    """Runs work once for the key, and returns (code, response, replayed).

    work(db, fence) returns (code, response).  Without a lease it runs in the
    transaction of the claim; with one, between two transactions.
    """
    for _ in range(tries):
        try:
            if lease is None:
                with db.transaction():
                    answer = attempt(db, key, request, work, None, wait)
            else:
                answer = attempt(db, key, request, work, lease, wait)
        except psycopg.Error as error:
            if error.sqlstate not in AGAIN and not getattr(error, 'lost', False):
                raise
            continue  # rolled back, or lost to another holder, who has the answer
        if answer.outcome == 'in_progress':
            pause(answer.retry_after)
        elif answer.outcome == 'mismatch':
            raise Mismatch
        else:
            return answer.code, answer.response, not answer.run
    raise TimeoutError(key)


def attempt(db, key, request, work, lease, wait):
    claim = db.execute("""SELECT run, outcome, fence, response, code, retry_after
        FROM idem_claim(%s, %s, lease => %s, wait => %s)""",
                       [key, Jsonb(request), lease, wait]).fetchone()
    if claim.run:
        code, response = work(db, claim.fence)
        try:
            db.execute('SELECT idem_complete(%s, %s::text, fence => %s, code => %s)',
                       [key, response, claim.fence, code])
        except psycopg.Error as error:
            error.lost = error.sqlstate == 'ID409'
            raise
        claim = claim._replace(code=code, response=response)
    return claim


# The scenario.

def add(db, account, amount):
    return db.execute('UPDATE account SET balance = balance + %s WHERE id = %s RETURNING balance',
                      [amount, account]).fetchone().balance


def charge(amount):
    return lambda db, fence: (201, f'{{"balance": {add(db, 1, -amount)}}}')


def total(db):
    return db.execute('SELECT sum(balance) AS total FROM account').fetchone().total


def in_progress(db, other):
    other.execute('BEGIN')
    other.execute("SELECT run FROM idem_claim('pay-2')")

    def finish(seconds):
        other.execute("SELECT idem_complete('pay-2', 'theirs', code => 201)")
        other.execute('COMMIT')
    return once(db, 'pay-2', {}, charge(1), wait='0 s', pause=finish)


def serialization_failure(db, other):
    """Both read the sum and change a row each: one of the two has to start anew."""
    runs = []

    def spend(db, fence):
        if total(db) < 10:
            return 402, 'too little'
        runs.append(1)
        if len(runs) == 1:
            with other.transaction():
                total(other)
                add(other, 2, -10)
        return charge(10)(db, fence)

    # psycopg says it in BEGIN, so that a pooler needs nothing special
    db.isolation_level = other.isolation_level = IsolationLevel.SERIALIZABLE
    answer = once(db, 'pay-3', {}, spend)
    db.isolation_level = other.isolation_level = None
    return len(runs), answer


def deadlock(db, other):
    """Two transfers lock the same rows in opposite order: one is a deadlock's victim."""
    runs, answers = [], {}
    both = threading.Barrier(2)

    def transfer(db, key, source, target, amount):
        mine = []

        def work(db, fence):
            runs.append(1)
            mine.append(1)
            add(db, source, -amount)
            if len(mine) == 1:
                both.wait(30)
            add(db, target, amount)
            return 201, 'moved'
        answers[key] = once(db, key, {}, work)

    threads = [threading.Thread(target=transfer, args=args)
               for args in ((db, 'move-1', 1, 2, 5), (other, 'move-2', 2, 1, 15))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(runs), answers['move-1'], answers['move-2']


def lost_claim(db, other):
    runs = []

    def slow(db, fence):
        runs.append(1)
        time.sleep(0.02)
        taken = other.execute("SELECT fence FROM idem_claim('report', lease => '1 min')").fetchone()
        other.execute("SELECT idem_complete('report', 'the winner''s', fence => %s, code => 201)", [taken.fence])
        return 201, 'too late'
    answer = once(db, 'report', {}, slow, lease='1 ms')
    return len(runs), answer


def refused(db, sql):
    """The SQLSTATE of work that says the same every time, and how often it ran."""
    runs = []

    def work(db, fence):
        runs.append(1)
        db.execute(sql)
        return 200, 'done'
    try:
        once(db, 'once', {}, work)
    except psycopg.Error as error:
        return f'{error.sqlstate}, {len(runs)} run'
    return 'none'


def show(answer):
    code, response, replayed = answer
    return f'{code} {response}' + (' (replayed)' if replayed else '')


def main(pooled):
    def connect():
        return psycopg.connect(autocommit=True, row_factory=namedtuple_row,
                               prepare_threshold=None if pooled else 5)

    with connect() as db, connect() as other:
        print('first:', show(once(db, 'pay-1', {'amount': 25}, charge(25))))
        print('repeat:', show(once(db, 'pay-1', {'amount': 25.0}, charge(25))))
        try:
            once(db, 'pay-1', {'amount': 26}, charge(26))
        except Mismatch:
            print('same key, other request: mismatch')
        print('in progress: told to wait, then', show(in_progress(db, other)))
        runs, answer = serialization_failure(db, other)
        print(f'40001: {runs} runs, {show(answer)}')
        runs, *answers = deadlock(db, other)
        print(f'40P01: {"run again" if runs > 2 else runs}, {", ".join(map(show, answers))}')
        runs, answer = lost_claim(db, other)
        print(f'lost claim: {runs} run, {show(answer)}')

        db.execute("SELECT outcome FROM idem_fire('ticket', %s, 'close', key => 'close-1')", [1])
        for what, sql in (
                ('stale version', 'UPDATE account SET balance = 0, version = 1 WHERE id = 1'),
                ('illegal transition', "UPDATE ticket SET state = 'open' WHERE id = 1"),
                ('key of another event', "SELECT outcome FROM idem_fire('ticket', 2, 'close', key => 'close-1')"),
                ('no key', 'SELECT run FROM idem_claim(NULL)'),
                ('unfinished claim', "SELECT run FROM idem_claim('forgotten')")):
            print(f'{what}: {refused(db, sql)}')
        balances = db.execute('SELECT balance FROM account ORDER BY id').fetchall()
        print('balances:', *[row.balance for row in balances])


main('pooled' in sys.argv)
