/*
 * provider.js: a payment provider as real ones are: on the other side of HTTP,
 * with an Idempotency-Key of its own.  Card "slow" is charged at once and
 * answered late, card "declined" is refused, "slow-declined" is refused late.
 */
import express from 'express';
import pg from 'pg';
import { setTimeout as sleep } from 'node:timers/promises';
import { idempotent, problem } from './idempotency.js';

const pool = new pg.Pool({ user: 'provider', database: 'provider' });
pool.on('error', (error) => console.error(`provider: ${error.message}`));

async function charge(req, db) {
	const { merchant, card, amount } = req.body;

	if (/declined$/.test(card))
		return { code: 402, body: { error: 'card declined' } };
	const { rows } = await db.query(
		'INSERT INTO charge (merchant, card, amount) VALUES ($1, $2, $3) RETURNING id',
		[merchant, card, amount]);
	return { code: 201, body: { charge: `ch_${rows[0].id}`, amount } };
}

const app = express();
app.use(express.json());
app.post('/charges', (req, res, next) => {
	req.body ??= {};
	if (/^slow/.test(req.body.card)) {
		const send = res.send.bind(res);
		res.send = (body) => { sleep(1000).then(() => send(body)); return res; };
	}
	next();
}, idempotent(pool, { inside: charge, scope: (req) => `charges/${req.body.merchant}` }));
app.use(problem);

const server = app.listen(Number(process.env.PROVIDER_PORT ?? 0), '127.0.0.1', () =>
	console.log(`provider: http://127.0.0.1:${server.address().port}`));
