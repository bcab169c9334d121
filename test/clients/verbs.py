"""verbs.py: runs verbs.txt with psycopg 3, and prints each answer.

    python3 verbs.py VERBS prepared|plain
"""
import datetime
import json
import sys

import psycopg
from psycopg.types.json import Jsonb

BIND = {
    'text': lambda s: s.replace('\\n', '\n'),
    'int': int,
    'bigint': int,
    'bool': lambda s: s == 'true',
    'json': lambda s: Jsonb(json.loads(s)),
    'interval': lambda s: datetime.timedelta(seconds=int(s)),
    'time': lambda s: datetime.datetime.fromisoformat(s.replace('Z', '+00:00')),
    'texts': lambda s: s.split(','),
    'ints': lambda s: [int(n) for n in s.split(',')],
}
last = {}


def bind(parameter):
    kind, _, value = parameter.partition(' ')
    if kind == 'null':
        return None
    return last[value] if kind == 'last' else BIND[kind](value)


def show(value):
    if value is None:
        return ''
    if isinstance(value, bool):
        return 't' if value else 'f'
    if isinstance(value, datetime.datetime):
        return 'time'
    if isinstance(value, (dict, list)):
        return json.dumps(value, separators=(',', ':'))
    return str(value)


def main(file, mode):
    prepared = mode == 'prepared'
    with psycopg.connect(autocommit=True, prepare_threshold=0 if prepared else None) as db:
        for line in open(file, encoding='utf-8'):
            if line == '\n' or line.startswith('#'):
                continue
            parts = line.split('##')[0].split('`')
            try:
                rows = db.execute('%s'.join(p.replace('%', '%%') for p in parts[::2]),
                                  [bind(p) for p in parts[1::2]],
                                  prepare=prepared)
                if rows.description:
                    found = rows.fetchall()
                    if found:
                        last.update(zip((c.name for c in rows.description), found[0]))
                    print('/'.join('|'.join(map(show, row)) for row in found))
                else:
                    print()
            except psycopg.Error as error:
                print('ERROR', error.sqlstate)
                print(str(error).splitlines()[0], file=sys.stderr)


main(*sys.argv[1:])
