/*
 * idempotency.js: a request that carries an Idempotency-Key runs once, and its
 * repeats get the stored answer, byte for byte.  For Express and pg.
 *
 *     app.post('/orders', idempotent(pool, { inside: placeOrder }));
 *     app.use(problem);
 *
 * inside(req, db, result, claim) works in the transaction db and returns
 * { code, body }; whatever it throws undoes it and leaves the key free.
 * outside(req, claim), with a lease, comes first, outside of any transaction,
 * and returns the result.  It is repeated when its holder dies, so what it
 * calls needs a key of its own. */
const CLAIM = `SELECT run, outcome, attempt, fence, step, progress, response, code, retry_after
	FROM idem_claim($1, $2::jsonb, scope => $3, lease => $4, wait => $5)`;

/* Runs work(db) in a transaction, again where PostgreSQL says that this helps. */
export async function transaction(pool, work, tries = 3) {
	const db = await pool.connect();
	let broken;

	try {
		for (;;) {
			try {
				await db.query('BEGIN');
				const result = await work(db);
				await db.query('COMMIT');
				return result;
			} catch (error) {
				await db.query('ROLLBACK').catch((lost) => { broken = lost; });
				if (broken || --tries === 0 || !['40001', '40P01'].includes(error.code))
					throw error;
			}
		}
	} finally {
		db.release(broken);
	}
}

export function idempotent(pool, {
	inside, outside, lease = null, wait = '2 s',
	scope = () => null, key = (req) => req.get('Idempotency-Key')
}) {
	async function run(req) {
		const [id, tenant] = [key(req), scope(req)];
		const request = JSON.stringify({ method: req.method, path: req.originalUrl, body: req.body });
		const claim = async (db) => (await db.query(CLAIM, [id, request, tenant, lease, wait])).rows[0];
		const finish = async (db, claimed, result) => {
			const { code, body } = await inside(req, db, result, claimed);
			const response = JSON.stringify(body);

			await db.query(`SELECT ${code < 400 ? 'idem_complete' : 'idem_fail'}
				($1, $2::text, $3, $4, $5)`, [id, response, tenant, claimed.fence, code])
				/* ID409: the lease ran out and somebody took over, whose answer counts */
				.catch((error) => { throw Object.assign(error, error.code === 'ID409' && { retryAfter: 1 }); });
			return { run: true, code, response };
		};

		if (!outside) {
			return transaction(pool, async (db) => {
				const claimed = await claim(db);
				return claimed.run ? finish(db, claimed) : claimed;
			});
		}

		const claimed = await claim(pool);
		if (!claimed.run)
			return claimed;
		try {
			const result = await outside(req, claimed);
			return await transaction(pool, (db) => finish(db, claimed, result));
		} catch (error) {
			/* for now only: whoever comes next may try at once */
			await pool.query('SELECT idem_retry($1, $2::text, $3, $4)',
				[id, error.message, tenant, claimed.fence]).catch(() => {});
			throw error;
		}
	}

	return (req, res, next) => run(req).then(({ run: fresh, outcome, code, response, retry_after }) => {
		if (outcome === 'mismatch')
			throw Object.assign(new Error('this key was used for another request'), { status: 422 });
		if (outcome === 'in_progress')
			throw Object.assign(new Error('still being worked on'), { status: 409, retryAfter: retry_after });
		if (code >= 300 && code < 400)
			res.location(JSON.parse(response).location);
		res.status(code).set('Idempotency-Replayed', String(!fresh)).type('json').send(response);
	}).catch(next);
}

/* Errors as HTTP: ID409 is 409; what passes by itself is 503 and may be sent again. */
export function problem(error, req, res, next) {
	const code = String(error.code ?? '');
	const status = error.status ?? Number(/^ID([45]\d\d)$/.exec(code)?.[1] ??
		(code === '42501' ? 403 : /^(08|40|53|57|55P03|25006|ECONN|EPIPE)/.test(code) ? 503 : 500));

	if (error.retryAfter || status === 503)
		res.set('Retry-After', String(error.retryAfter ?? 1));
	res.status(status).json({ error: status === 500 ? 'internal error' : error.message, code });
}
