/*
 * server.js: the shop.  Its database is where PGHOST and PGPORT say, the
 * payment provider is at PROVIDER, and it listens on PORT of this machine only.
 */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import express from 'express';
import pg from 'pg';
import { consume } from './consumer.js';
import { idempotent, problem, transaction } from './idempotency.js';
import * as page from './pages.js';

const { PROVIDER, PORT = 0 } = process.env;
const pool = new pg.Pool({ user: 'shop', database: 'shop' });
pool.on('error', (error) => console.error(`shop: ${error.message}`));

const one = async (db, sql, values) => (await db.query(sql, values)).rows[0];
const fail = (status, message) => Object.assign(new Error(message), { status });

/* Keys are chosen by clients, so each customer has his own. */
const scope = (what) => (req) => `${what}/${req.customer}`;

/* The order form.  Its one-time token is its key as well: "back" and "send" again
 * is a repeat, and is led to the same order. */
async function place(req, db) {
	const { token, ...counts } = req.body;
	const verdict = await one(db, 'SELECT idem_token_use($1, $2, $3, $4) AS is',
		[token, 'order', req.customer, counts]);

	if (verdict.is !== 'consumed')
		throw fail(410, `this form is ${verdict.is}: open the shop again`);
	const order = await one(db, `
		WITH item AS (
			SELECT p.name, p.price, c.value::int AS count
			FROM jsonb_each_text($2::jsonb) AS c JOIN product AS p ON p.id = c.key
			WHERE c.value::int > 0
		)
		INSERT INTO orders (customer, items, total)
		SELECT $1, jsonb_agg(to_jsonb(item)), sum(price * count) FROM item HAVING count(*) > 0
		RETURNING id`, [req.customer, counts]);
	if (!order)
		throw fail(400, 'the basket is empty');
	return { code: 303, body: { location: `/orders/${order.id}` } };
}

/* Paying, first half: the provider's charge, outside of any transaction.  Its
 * key names the effect: the same for every tab, attempt and restart. */
async function charge(req) {
	const order = await transaction(pool, async (db) => {
		await db.query(`SELECT set_config('idem.actor', $1, true)`, [req.customer]);
		await owned(db, req);
		const fired = await one(db, `SELECT outcome, from_state FROM idem_try_fire('orders', $1, 'charge')`,
			[req.params.id]);
		const row = await one(db, `UPDATE orders SET charges = charges + $2 WHERE id = $1
			RETURNING id, total, charges, idem_child('order-' || id, 'charge-' || charges) AS key`,
		[req.params.id, fired.outcome === 'applied' ? 1 : 0]);

		return { ...row, refused: fired.outcome === 'illegal' && fired.from_state };
	});
	if (order.refused)
		return order;

	const answer = await fetch(`${PROVIDER}/charges`, {
		method: 'POST',
		headers: { 'Content-Type': 'application/json', 'Idempotency-Key': order.key },
		body: JSON.stringify({ merchant: 'shop', card: req.body.card, amount: order.total })
	}).catch(() => { throw fail(503, 'the payment provider cannot be reached'); });
	if (![201, 402].includes(answer.status))
		throw fail(503, 'the payment provider is busy');
	return { ...order, accepted: answer.status === 201, ...await answer.json() };
}

/* Second half: what became of it, in one transaction with the stored answer. */
async function settle(req, db, order) {
	if (order.refused)
		return { code: 409, body: { error: `order ${order.id} is ${order.refused} already` } };

	await db.query(`SELECT set_config('idem.actor', 'provider', true)`);
	/* a refusal that another tab has recorded must not end the charge that came after it */
	const { charges } = await one(db, 'SELECT charges FROM orders WHERE id = $1 FOR UPDATE', [order.id]);
	if (charges !== order.charges)
		return { code: 402, body: { error: order.error } };
	const { outcome } = await one(db, `SELECT outcome FROM idem_fire('orders', $1, $2)`,
		[order.id, order.accepted ? 'settle' : 'decline']);
	if (!order.accepted)
		return { code: 402, body: { error: order.error } };
	if (outcome === 'applied') {
		await db.query('INSERT INTO payment VALUES ($1, $2, $3)', [order.id, order.charge, order.total]);
		await db.query('INSERT INTO message (body) VALUES ($1)',
			[{ customer: req.customer, subject: `Receipt for order ${order.id}` }]);
	}
	return { code: 201, body: { order: order.id, state: 'paid', charge: order.charge } };
}

/* Any other event; what the machine does not allow is ID409. */
async function event(req, db) {
	await db.query(`SELECT set_config('idem.actor', $1, true)`, [req.customer]);
	await owned(db, req);
	if (!['cancel', 'ship'].includes(req.params.event))
		throw fail(404, 'no such event');
	const fired = await one(db, `SELECT to_state AS state FROM idem_fire('orders', $1, $2)`,
		[req.params.id, req.params.event]);
	return { code: 200, body: { order: Number(req.params.id), ...fired } };
}

async function owned(db, req) {
	const order = await one(db, 'SELECT * FROM orders WHERE id = $1 AND customer = $2',
		[req.params.id, req.customer]);
	if (!order)
		throw fail(404, 'you have no such order');
	return order;
}

const draw = (dot) => new Promise((resolve, reject) => {
	const child = execFile('dot', ['-Tsvg', '-Grankdir=LR', '-Gbgcolor=transparent'], (error, svg) =>
		(error ? reject(error) : resolve(svg.slice(svg.indexOf('<svg')))));
	child.stdin.on('error', () => {}).end(dot);
});

const app = express();
app.use(express.json(), express.urlencoded({ extended: false }));
app.use('/static', express.static(fileURLToPath(new URL('public', import.meta.url))));

/* In place of a login: ?as=bob, kept in a cookie. */
app.use((req, res, next) => {
	const cookie = /(?:^|; )customer=(\w+)/.exec(req.get('Cookie') ?? '')?.[1];

	req.body ??= {};
	req.customer = /^(alice|bob)$/.exec(req.query.as ?? cookie ?? '')?.[0] ?? 'alice';
	res.set('Cache-Control', 'no-cache').cookie('customer', req.customer, { httpOnly: true, sameSite: 'lax' });
	next();
});

app.post('/orders', idempotent(pool, { inside: place, scope: scope('orders'), key: (req) => req.body.token }));
app.post('/api/orders/:id/payment',
	idempotent(pool, { outside: charge, inside: settle, scope: scope('payments'), lease: '3 s' }));
app.post('/api/orders/:id/events/:event', idempotent(pool, { inside: event, scope: scope('events') }));

/* Versions travel as ETag and If-Match. */
app.get('/api/profile', async (req, res) => {
	const { version, ...row } = await one(pool, 'SELECT * FROM customer WHERE name = $1', [req.customer]);
	res.set('ETag', `"${version}"`).json(row);
});
app.put('/api/profile', async (req, res) => {
	const { address, phone } = req.body;
	const saved = await one(pool, `SELECT * FROM idem_update('customer', $1::text, $2, $3)`,
		[req.customer, /^"(\d+)"$/.exec(req.get('If-Match') ?? '')?.[1], { address, phone }]);

	res.set('ETag', `"${saved.version}"`);
	if (saved.outcome === 'stale')
		res.status(412).json({ error: 'somebody else has saved first', current: saved.current });
	else
		res.json({ address, phone });
});

app.get('/', async (req, res) => {
	const [products, orders, token] = await Promise.all([
		pool.query('SELECT * FROM product ORDER BY price'),
		pool.query('SELECT id, total, state FROM orders WHERE customer = $1 ORDER BY id DESC LIMIT 8', [req.customer]),
		one(pool, 'SELECT idem_token_issue($1, $2) AS token', ['order', req.customer])
	]);
	res.send(page.shop(req.customer, products.rows, orders.rows, token.token));
});
app.get('/orders/:id', async (req, res) => {
	res.send(page.order(req.customer, await owned(pool, req)));
});
app.get('/api/orders/:id', async (req, res) => {
	const { id } = await owned(pool, req);
	const order = await one(pool, `SELECT id, state,
		(SELECT json_agg(a.event) FROM idem_allowed('orders', o.id) AS a) AS allowed,
		(SELECT json_agg(json_build_object('event', h.event, 'from', h.from_state, 'to', h.to_state,
			'actor', h.actor) ORDER BY h.seq) FROM idem_history('orders', o.id) AS h) AS history,
		(SELECT count(*)::int FROM payment WHERE order_id = o.id) AS payments,
		(SELECT count(*)::int FROM mail WHERE recipient = o.customer AND subject LIKE '% order ' || o.id) AS mails,
		(SELECT sum(deliveries)::int FROM message WHERE body ->> 'subject' LIKE '% order ' || o.id) AS deliveries
		FROM orders AS o WHERE id = $1`, [id]);
	res.json(order);
});
app.get('/profile', (req, res) => res.send(page.profile(req.customer)));

let drawn = {};
app.get('/diagram.svg', async (req, res) => {
	const { dot } = await one(pool, `SELECT idem_diagram('order', 'dot', counts => true) AS dot`);

	if (drawn.dot !== dot)
		drawn = { dot, svg: await draw(dot) };
	res.type('svg').send(drawn.svg);
});
app.get('/diagram.mmd', async (req, res) => {
	const { text } = await one(pool, `SELECT idem_diagram('order', counts => true) AS text`);
	res.type('text').send(text);
});

app.use((error, req, res, next) => {
	problem(error, req, req.accepts(['json', 'html']) === 'html' ? page.asHtml(res) : res, next);
	if (res.statusCode === 500)
		console.error(error);
});

const server = app.listen(Number(PORT), '127.0.0.1', () =>
	console.log(`shop: http://127.0.0.1:${server.address().port}`));
consume(pool);
