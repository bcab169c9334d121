"""example.py: idem from psycopg 3.

    PGHOST=... PGDATABASE=... python3 example.py [pooled]

"pooled" is for a pooler in transaction mode, where psycopg must not prepare.
"""
import sys
import time

import psycopg
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


def sqlstate(work):
    try:
        work()
    except psycopg.Error as error:
        return error.sqlstate
    return 'none'


def main(pooled):
    def connect():
        return psycopg.connect(autocommit=True, row_factory=namedtuple_row,
                               prepare_threshold=None if pooled else 5)

    def show(answer):
        code, response, replayed = answer
        return f'{code} {response}' + (' (replayed)' if replayed else '')

    def charge(amount, fails=None):
        runs = []

        def work(db, fence):
            runs.append(1)
            row = db.execute('UPDATE account SET balance = balance - %s WHERE id = 1 RETURNING balance',
                             [amount]).fetchone()
            if fails and len(runs) == 1:
                db.execute(f"DO $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = '{fails}'; END $$")
            return 201, f'{{"balance": {row.balance}}}'
        work.runs = runs
        return work

    with connect() as db, connect() as other:
        print('first:', show(once(db, 'pay-1', {'amount': 25}, charge(25))))
        print('repeat:', show(once(db, 'pay-1', {'amount': 25.0}, charge(25))))
        try:
            once(db, 'pay-1', {'amount': 26}, charge(26))
        except Mismatch:
            print('same key, other request: mismatch')

        other.execute('BEGIN')
        other.execute("SELECT run FROM idem_claim('pay-2')")

        def finish(seconds):
            print('in progress: told to wait, then ', end='')
            other.execute("SELECT idem_complete('pay-2', 'theirs', code => 201)")
            other.execute('COMMIT')
        print(show(once(db, 'pay-2', {}, charge(1), wait='0 s', pause=finish)))

        for n, code in enumerate(('40001', '40P01'), 3):
            work = charge(10, code)
            answer = show(once(db, f'pay-{n}', {}, work))
            print(f'{code}: {len(work.runs)} runs, {answer}')

        def slow(db, fence):
            time.sleep(0.02)
            taken = other.execute("SELECT fence FROM idem_claim('report', lease => '1 min')").fetchone()
            other.execute("SELECT idem_complete('report', 'the winner''s', fence => %s, code => 201)", [taken.fence])
            return 201, 'too late'
        print('lost claim:', show(once(db, 'report', {}, slow, lease='1 ms')))

        print('stale version:', sqlstate(lambda: db.execute(
            'UPDATE account SET balance = 0, version = %s WHERE id = %s', [1, 1])))
        db.execute("SELECT outcome FROM idem_fire('ticket', %s, 'close')", [1])
        print('illegal transition:', sqlstate(lambda: db.execute(
            "UPDATE ticket SET state = 'open' WHERE id = %s", [1])))
        print('no key:', sqlstate(lambda: db.execute('SELECT run FROM idem_claim(%s)', [None])))
        db.execute('BEGIN')
        db.execute("SELECT run FROM idem_claim('forgotten')")
        print('unfinished claim:', sqlstate(lambda: db.execute('COMMIT')))
        print('balance:', db.execute('SELECT balance FROM account').fetchone().balance)


main('pooled' in sys.argv)
