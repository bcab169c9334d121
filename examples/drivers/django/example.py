"""example.py: idem from Django, with ATOMIC_REQUESTS.

    PGHOST=... PGDATABASE=... python3 example.py

The view is the transaction: claim, work and complete belong into it.
Middleware runs outside, and sees what COMMIT said.
"""
import os

import django
from django.conf import settings

settings.configure(
    ALLOWED_HOSTS=['*'], SECRET_KEY='not used', LOGGING_CONFIG=None, MIDDLEWARE=[__name__ + '.problem'], ROOT_URLCONF=__name__,
    DATABASES={'default': {
        'ENGINE': 'django.db.backends.postgresql', 'ATOMIC_REQUESTS': True,
        'HOST': os.environ['PGHOST'], 'PORT': os.environ['PGPORT'],
        'USER': os.environ['PGUSER'], 'NAME': os.environ['PGDATABASE']}})
django.setup()

from django.db import Error, connection  # noqa: E402
from django.http import HttpResponse  # noqa: E402
from django.test import Client  # noqa: E402
from django.urls import path  # noqa: E402


def query(sql, *values):
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return cursor.fetchone() if cursor.description else None


def sqlstate(error):
    """psycopg 3 calls it sqlstate, psycopg2 pgcode."""
    cause = error.__cause__
    return getattr(cause, 'sqlstate', None) or getattr(cause, 'pgcode', None)


def problem(get_response):
    """IDnnn as HTTP, whether the view raised it or its COMMIT."""
    def middleware(request):
        return get_response(request)

    def process_exception(request, error):
        code = sqlstate(error) or ''
        if isinstance(error, Error) and code.startswith('ID'):
            return HttpResponse(code, status=int(code[2:]))
        return None
    middleware.process_exception = process_exception
    return middleware


def pay(request):
    key = request.headers.get('Idempotency-Key')
    run, outcome, response, code, retry_after = query(
        'SELECT run, outcome, response, code, retry_after FROM idem_claim(%s, %s::jsonb, wait => %s)',
        key, '{"amount": 25}', '2 s')
    if outcome == 'in_progress':
        return HttpResponse(status=409, headers={'Retry-After': str(retry_after)})
    if outcome == 'mismatch':
        return HttpResponse(status=422)
    if run:
        query('UPDATE account SET balance = balance - 25 WHERE id = 1')
        code, response = 201, 'paid'
        query('SELECT idem_complete(%s, %s::text, code => %s)', key, response, code)
    answer = HttpResponse(response, status=code)
    answer['Idempotency-Replayed'] = str(not run).lower()
    return answer


def stale(request):
    query('UPDATE account SET balance = 0, version = %s WHERE id = 1', 1)
    return HttpResponse()


def forgets(request):
    query('SELECT run FROM idem_claim(%s)', 'forgotten')
    return HttpResponse('all is well')


urlpatterns = [path('pay', pay), path('stale', stale), path('forgets', forgets)]


def main():
    client = Client(raise_request_exception=False)

    for name in ('first', 'repeat'):
        answer = client.post('/pay', HTTP_IDEMPOTENCY_KEY='pay-1')
        print(f"{name}: {answer.status_code} {answer.content.decode()}, replayed {answer['Idempotency-Replayed']}")
    print('no key:', client.post('/pay').status_code)
    print('stale version:', client.post('/stale').status_code)
    print('unfinished claim:', client.post('/forgets').status_code)
    print('balance:', query('SELECT balance FROM account WHERE id = 1')[0])


main()
