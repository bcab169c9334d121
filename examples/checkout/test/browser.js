/*
 * browser.js: the shop in a real browser, with everything that goes wrong
 * between a click and its answer.  Each step is looked up in the page and in
 * both databases.  Prints the test protocol of prove.
 *
 *     node test/browser.js [DIRECTORY]      screenshots go there
 *
 * The databases are those of PGHOST and PGPORT, made by schema.sql and
 * provider.sql; the browser is CHROMIUM, or chromium.
 */
import { spawn } from 'node:child_process';
import net from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { chromium } from 'playwright-core';

const pictures = process.argv[2];
const shop = new pg.Pool({ database: 'shop', user: process.env.PGUSER ?? 'postgres' });
const provider = new pg.Pool({ database: 'provider', user: process.env.PGUSER ?? 'postgres' });
let count = 0, failed = 0;

function ok(good, name, ...said) {
	console.log(`${good ? 'ok' : 'not ok'} ${++count} - ${name}`);
	if (!good) {
		failed++;
		for (const what of said)
			console.log(`# ${JSON.stringify(what)}`);
	}
}
const is = (got, expected, name) =>
	ok(JSON.stringify(got) === JSON.stringify(expected), name, { got }, { expected });

async function value(pool, sql, ...values) {
	const { rows } = await pool.query({ text: sql, values, rowMode: 'array' });
	return rows[0]?.[0];
}

async function until(what, name) {
	for (let i = 0; i < 200; i++) {
		if (await what())
			return;
		await sleep(50);
	}
	throw new Error(`waited in vain: ${name}`);
}

/* Starts a program and returns it with the port that it tells. */
const running = new Set();
function start(file, env) {
	return new Promise((resolve, reject) => {
		const child = spawn(process.execPath, [new URL(`../${file}`, import.meta.url).pathname],
			{ env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'inherit'] });

		running.add(child);
		child.on('exit', () => { running.delete(child); reject(new Error(`${file} ended`)); });
		child.stdout.on('data', (text) => {
			const port = /:(\d+)\s/.exec(text)?.[1];
			if (port)
				resolve({ child, port: Number(port) });
		});
	});
}

/* The network between browser and shop: a wire that can be cut. */
const wires = new Set();
let connected = true, backend;
const network = net.createServer((near) => {
	if (!connected)
		return near.destroy();
	const far = net.connect(backend.port, '127.0.0.1');
	wires.add(near).add(far);
	for (const [a, b] of [[near, far], [far, near]]) {
		a.on('error', () => {}).on('close', () => { wires.delete(a); b.destroy(); }).pipe(b);
	}
});
function cut() {
	connected = false;
	for (const wire of wires)
		wire.destroy();
}

const payments = await start('provider.js', {});
const startShop = async () => {
	backend = await start('server.js', { PROVIDER: `http://127.0.0.1:${payments.port}` });
};
await startShop();
await new Promise((resolve) => { network.listen(0, '127.0.0.1', resolve); });
const base = `http://127.0.0.1:${network.address().port}`;

const browser = await chromium.launch({
	executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
	args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--disable-quic', '--no-first-run',
		'--disable-background-networking', '--disable-component-update', '--disable-sync']
});
const context = await browser.newContext({ viewport: { width: 1000, height: 760 } });
context.setDefaultTimeout(15000);
const page = await context.newPage();

async function picture(name, of = page) {
	if (pictures) {
		await of.waitForTimeout(1200);
		await of.locator('body').screenshot({ path: `${pictures}/${name}.png` });
	}
}

/* The page of an order has come, whatever navigation a second click has cut short. */
async function arrived(of = page) {
	await until(() => /\/orders\/\d+$/.test(of.url()), 'the page of an order');
	await of.waitForSelector('#state');
}

/* Orders one tea; the number of the order that the page then shows. */
async function order(of = page) {
	await of.goto(`${base}/`);
	await of.click('#basket button');
	await arrived(of);
	return Number(of.url().split('/').pop());
}
const verdict = (of, text) => of.waitForFunction((t) =>
	new RegExp(t).test(document.querySelector('#verdict').textContent), text);
const wire = (of = page) => of.locator('#wire li').allTextContents();
const attempts = () => value(shop, `SELECT attempt FROM idem.key WHERE scope = 'payments/alice'
	ORDER BY created_at DESC LIMIT 1`);
const charges = () => value(provider, 'SELECT count(*)::int FROM charge');

/* What stands in the database for an order: its state and its payments. */
const stands = (id) => value(shop, `SELECT state || ' ' || (SELECT count(*) FROM payment WHERE order_id = id)
	FROM orders WHERE id = $1`, id);

/* One payment: "go" makes it, whatever happens on the way. */
async function paidOnce(name, go) {
	const id = await order();
	const before = await charges();

	await go(id);
	await verdict(page, 'is paid');
	is(await page.textContent('#state'), 'paid', `${name}: the page says paid`);
	is(await stands(id), 'paid 1', `${name}: one payment in the shop`);
	is(await charges() - before, 1, `${name}: one charge at the provider`);
	return id;
}
const charged = async (before) => until(async () => await charges() > before, 'the charge');

try {
	/* The form. */
	const first = await order();
	is(await stands(first), 'placed 0', 'a form was sent: one order');
	await page.goBack();
	await page.click('#basket button');
	await arrived();
	is(page.url(), `${base}/orders/${first}`, 'back and sent again: led to the same order');
	is(await value(shop, 'SELECT count(*)::int FROM orders'), 1, 'back and sent again: one order in the database');
	await page.goBack();
	await page.fill('#tea', '3');
	await page.click('#basket button');
	is(await page.textContent('#problem'), 'this key was used for another request',
		'back, changed and sent again: refused');
	is(await value(shop, `SELECT string_agg(items -> 0 ->> 'count', ' ') FROM orders`), '1',
		'back, changed and sent again: the order is what it was');
	await page.goto(`${base}/`);
	await page.dblclick('#basket button');
	await arrived();
	is(await value(shop, 'SELECT count(*)::int FROM orders'), 2, 'double click on a form: one order');
	await page.goto(`${base}/`);
	await page.evaluate(() => { document.querySelector('[name=token]').value = 'made-up'; });
	await page.click('#basket button');
	is(await page.textContent('h1'), '410', 'a token that nobody issued: refused');
	is(await value(shop, 'SELECT count(*)::int FROM orders'), 2, 'and no order');

	/* The button. */
	const answers = [];
	page.on('response', async (r) => {
		if (r.url().endsWith('/payment'))
			answers.push({ status: r.status(), replayed: r.headers()['idempotency-replayed'],
				body: await r.body().then(String, () => null) });
	});
	const clicked = await paidOnce('double click', () => page.dblclick('#pay'));
	await until(() => answers.filter((a) => a.status === 201).length === 2, 'both answers');
	const [fresh, replayed] = answers.filter((a) => a.status === 201)
		.sort((a, b) => a.replayed.localeCompare(b.replayed));
	is([fresh.replayed, replayed.replayed], ['false', 'true'], 'double click: one ran, one was replayed');
	is(replayed.body, fresh.body, 'double click: the same answer, byte for byte');
	is(await value(shop, `SELECT response FROM idem.key WHERE scope = 'payments/alice' AND response::json ->> 'order' = $1`,
		clicked), fresh.body, 'double click: which is what the database holds');
	ok((await wire()).some((line) => /409, again in \d+ s$/.test(line)), 'double click: one was told to come back', await wire());
	await until(async () => /Receipts: 1,/.test(await page.textContent('#facts')), 'the receipt');
	await picture('checkout-paid');
	const soFar = await charges();
	await page.goBack();
	await page.goForward();
	await page.waitForFunction(() => document.querySelector('#history').rows.length === 3);
	is([await page.textContent('#state'), await page.isVisible('#pay')], ['paid', false], 'back and forward: paid, and no button');
	is([await stands(clicked), await charges() - soFar], ['paid 1', 0], 'back and forward: nothing was charged');

	/* The card. */
	await paidOnce('declined, then another card', async (id) => {
		await page.selectOption('#card', 'declined');
		await page.click('#pay');
		await verdict(page, 'declined');
		is(await stands(id), 'placed 0', 'declined: the order waits for another try');
		await page.selectOption('#card', 'good');
		await page.click('#pay');
	});

	/* The network. */
	await paidOnce('network cut', async () => {
		const before = await charges();
		await page.selectOption('#card', 'slow');
		await page.click('#pay');
		await charged(before);
		cut();
		await page.waitForFunction(() => document.querySelectorAll('#wire li').length >= 2);
		ok((await wire()).every((line) => line.endsWith('no answer: again, with the same key')),
			'network cut: the page has no answer', await wire());
		connected = true;
		await verdict(page, 'is paid');
		ok((await wire()).pop().endsWith('201, replayed'), 'network cut: the page got the stored answer', await wire());
		is(await attempts(), 1, 'network cut: one attempt');
		await picture('checkout-cut');
	});

	await paidOnce('page reloaded while paying', async () => {
		const before = await charges();
		await page.selectOption('#card', 'slow');
		await page.click('#pay');
		await charged(before);
		await page.reload();
	});

	/* The server. */
	await paidOnce('server killed between charge and answer', async () => {
		const before = await charges();
		await page.selectOption('#card', 'slow');
		await page.click('#pay');
		await charged(before);
		const gone = new Promise((resolve) => { backend.child.once('exit', resolve); });
		backend.child.kill('SIGKILL');
		await gone;
		is(await stands(Number(page.url().split('/').pop())), 'paying 0', 'server killed: charged, and not known to the shop');
		await startShop();
	});
	is(await attempts(), 2, 'server killed: the second attempt took over');

	/* Two tabs, and nobody to tell them of each other. */
	const other = await context.newPage();
	const both = await order();
	const before = await charges();
	await other.goto(page.url());
	await Promise.all([page, other].map((tab) => tab.evaluate(() => document.querySelector('#pay').click())));
	for (const tab of [page, other])
		await verdict(tab, 'is paid');
	is([await page.textContent('#state'), await other.textContent('#state')], ['paid', 'paid'],
		'two tabs pay: both say paid');
	is(await stands(both), 'paid 1', 'two tabs pay: one payment in the shop');
	is(await charges() - before, 1, 'two tabs pay: one charge at the provider');
	is(await other.evaluate(async (path) => {
		const answer = await fetch(path, { method: 'POST', headers: { 'Idempotency-Key': crypto.randomUUID() } });
		return [answer.status, (await answer.json()).code];
	}, `/api/orders/${both}/events/cancel`), [409, 'ID409'], 'a paid order is not cancelled: 409');
	is(await stands(both), 'paid 1', 'and stays paid');
	is(await other.evaluate(async (path) => (await fetch(path, { method: 'POST' })).status,
		`/api/orders/${both}/events/ship`), 400, 'a request without a key: 400');
	is(await stands(both), 'paid 1', 'and nothing done');
	await page.click('[data-event=ship]');
	await verdict(page, 'is shipped');
	is(await stands(both), 'shipped 1', 'a paid order is shipped');

	/* One charge is refused twice, and the second time is told late, when the next
	 * one has begun. */
	const late = await order();
	const pay = (card) => page.evaluate(async ([path, body]) => (await fetch(path, {
		method: 'POST',
		headers: { 'Content-Type': 'application/json', 'Idempotency-Key': crypto.randomUUID() },
		body
	})).status, [`/api/orders/${late}/payment`, JSON.stringify({ card })]);
	const refusals = [pay('slow-declined'), sleep(600).then(() => pay('slow-declined'))];
	is([await refusals[0], await pay('slow'), await refusals[1]], [402, 201, 402],
		'a late refusal: of the charge that it belongs to');
	is(await stands(late), 'paid 1', 'a late refusal does not end the next charge');
	await page.waitForFunction(() => document.querySelector('#state').textContent === 'paid');
	ok(true, 'and the page says paid');

	/* Two tabs with one form. */
	await page.goto(`${base}/profile`);
	await other.goto(`${base}/profile`);
	for (const tab of [page, other])
		await tab.waitForFunction(() => document.querySelector('#version').textContent === 'version 1');
	await page.fill('[name=address]', '2 River Lane');
	await page.click('form button');
	await verdict(page, 'Saved');
	await other.fill('[name=phone]', '555-0199');
	await other.click('form button');
	await verdict(other, '^412');
	is(await other.locator('#both td').allTextContents(),
		['address', '1 Lake Road', '2 River Lane', 'phone', '555-0199', '555-0100'],
		'second save of one version: 412, and both are shown');
	is(await value(shop, `SELECT address || ', ' || phone FROM customer WHERE name = 'alice'`),
		'2 River Lane, 555-0100', 'the first save stands');
	await picture('checkout-conflict', other);
	is(await other.evaluate(async () => (await fetch('/api/profile', { method: 'PUT' })).status), 428,
		'a save that names no version: 428');
	is(await value(shop, `SELECT address || ', ' || version FROM customer WHERE name = 'alice'`), '2 River Lane, 2',
		'and nothing saved');
	await other.click('#theirs');
	await other.fill('[name=phone]', '555-0199');
	await other.click('form button');
	await verdict(other, 'Saved');
	is(await value(shop, `SELECT address || ', ' || phone || ', ' || version FROM customer WHERE name = 'alice'`),
		'2 River Lane, 555-0199, 3', 'and then the second one, knowing of it');

	/* The queue delivers everything once more. */
	const mails = await value(shop, 'SELECT count(*)::int FROM mail');
	const messages = await value(shop, 'SELECT count(*)::int FROM message');
	await shop.query('UPDATE message SET acknowledged = false');
	await until(() => value(shop, 'SELECT bool_and(acknowledged AND deliveries > 1) FROM message'), 'the second delivery');
	is([mails, await value(shop, 'SELECT count(*)::int FROM mail')], [messages, messages],
		'every message was delivered twice and mailed once');
	await page.goto(`${base}/orders/${clicked}`);
	await page.waitForFunction(() => /Receipts: 1, delivered 2×/.test(document.querySelector('#facts').textContent));
	ok(true, 'the page says so');

	/* The diagram in the page, and the whole. */
	await page.goto(`${base}/`);
	await page.waitForSelector('#diagram svg');
	const { rows } = await shop.query('SELECT state, count(*) FROM orders GROUP BY state');
	const drawn = await page.locator('#diagram g.node').allTextContents();
	ok(rows.length >= 3 && rows.every((row) =>
		drawn.some((text) => new RegExp(`${row.state}\\s+${row.count}\\s*$`).test(text))),
	'the diagram shows how many orders are in each state', rows, drawn);
	is(await page.textContent('#mermaid'), await value(shop, `SELECT idem_diagram('order', counts => true)`),
		'and the text below it is the database\'s');
	await picture('checkout-shop');
	is(await value(shop, `SELECT count(*)::int FROM payment`), await charges(), 'audit: as many payments as charges');
	is(await value(shop, `SELECT count(*)::int FROM orders AS o WHERE (state IN ('paid', 'shipped')) <>
		((SELECT count(*) FROM payment WHERE order_id = o.id) = 1)`), 0, 'audit: paid orders have one payment, others none');
	is(await value(shop, `SELECT count(*)::int FROM idem.key WHERE state = 'in_progress'`), 0, 'audit: nothing is left in progress');
} catch (error) {
	ok(false, 'went through');
	console.log(String(error.stack).replace(/^/gm, '# '));
	for (const tab of context.pages())
		console.log(`# ${tab.url()}: ${(await tab.innerText('body').catch(() => '')).replace(/\n/g, '\n# ')}`);
} finally {
	await browser.close();
	network.close();
	cut();
	for (const child of running)
		child.removeAllListeners('exit').kill('SIGKILL');
	await Promise.all([shop.end(), provider.end()]);
}
console.log(`1..${count}`);
process.exitCode = failed === 0 ? 0 : 1;
