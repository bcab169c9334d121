/*
 * example.js: idem from node-postgres.
 *
 *     PGHOST=... PGDATABASE=... node example.js
 *
 * Queries without a name are not kept on the server, so that a pooler in
 * transaction mode needs nothing special.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';

/* What is worth the same transaction once more.  What is not: ID400, ID404,
 * ID409, ID412, ID422, ID428 and ID500 say the same every time. */
const AGAIN = ['40001', '40P01'];

class Mismatch extends Error {}

/*
 * Runs work once for the key, and returns { code, response, replayed }.
 * work(db, fence) returns { code, response }.  Without a lease it runs in the
 * transaction of the claim; with one, between two transactions.
 */
export async function once(db, key, request, work,
	{ lease = null, wait = '2 s', isolation = 'READ COMMITTED', pause = (s) => sleep(s * 1000), tries = 10 } = {}) {
	while (tries-- > 0) {
		let answer;

		try {
			if (!lease)
				await db.query(`BEGIN ISOLATION LEVEL ${isolation}`);
			answer = await attempt(db, key, request, work, lease, wait);
			if (!lease)
				await db.query('COMMIT');
		} catch (error) {
			if (!lease)
				await db.query('ROLLBACK');
			if (!AGAIN.includes(error.code) && !error.lost)
				throw error;
			continue;		/* rolled back, or lost to another holder, who has the answer */
		}
		if (answer.outcome === 'in_progress')
			await pause(answer.retry_after);
		else if (answer.outcome === 'mismatch')
			throw new Mismatch('the key was used before for another request');
		else
			return { code: answer.code, response: answer.response, replayed: !answer.run };
	}
	throw new Error('no answer');
}

async function attempt(db, key, request, work, lease, wait) {
	const { rows: [claim] } = await db.query(`SELECT run, outcome, fence, response, code, retry_after
		FROM idem_claim($1, $2, lease => $3, wait => $4)`, [key, JSON.stringify(request), lease, wait]);

	if (!claim.run)
		return claim;
	const { code, response } = await work(db, claim.fence);
	await db.query('SELECT idem_complete($1, $2::text, fence => $3, code => $4)', [key, response, claim.fence, code])
		.catch((error) => { throw Object.assign(error, { lost: error.code === 'ID409' }); });
	return { ...claim, code, response };
}

/* The scenario. */

const show = ({ code, response, replayed }) => `${code} ${response}${replayed ? ' (replayed)' : ''}`;
const [db, other] = [new pg.Client(), new pg.Client()];
await Promise.all([db.connect(), other.connect()]);

async function add(client, id, amount) {
	const { rows: [{ balance }] } = await client.query(
		'UPDATE account SET balance = balance + $1 WHERE id = $2 RETURNING balance', [amount, id]);
	return balance;
}
const charge = (amount) => async (client) =>
	({ code: 201, response: `{"balance": ${await add(client, 1, -amount)}}` });

console.log('first:', show(await once(db, 'pay-1', { amount: 25 }, charge(25))));
console.log('repeat:', show(await once(db, 'pay-1', { amount: 25.0 }, charge(25))));
await once(db, 'pay-1', { amount: 26 }, charge(26)).catch((error) =>
	console.log('same key, other request:', error instanceof Mismatch ? 'mismatch' : error));

await other.query('BEGIN');
await other.query(`SELECT run FROM idem_claim('pay-2')`);
const pause = async () => {
	await other.query(`SELECT idem_complete('pay-2', 'theirs', code => 201)`);
	await other.query('COMMIT');
};
console.log('in progress: told to wait, then', show(await once(db, 'pay-2', {}, charge(1), { wait: '0 s', pause })));

/* Both read the sum and change a row each: one of the two has to start anew. */
const total = async (client) =>
	(await client.query('SELECT sum(balance) AS total FROM account')).rows[0].total;
let runs = 0;
const spend = async () => {
	if (await total(db) < 10)
		return { code: 402, response: 'too little' };
	if (++runs === 1) {
		await other.query('BEGIN ISOLATION LEVEL SERIALIZABLE');
		await total(other);
		await add(other, 2, -10);
		await other.query('COMMIT');
	}
	return charge(10)(db);
};
const spent = await once(db, 'pay-3', {}, spend, { isolation: 'SERIALIZABLE' });
console.log(`40001: ${runs} runs, ${show(spent)}`);

/* Two transfers lock the same rows in opposite order: one is a deadlock's victim. */
let both, waiting = 2;
const met = new Promise((resolve) => { both = resolve; });
runs = 0;
const transfer = (from, to, amount) => async (client) => {
	runs++;
	await add(client, from, -amount);
	if (--waiting === 0)
		both();
	await met;
	await add(client, to, amount);
	return { code: 201, response: 'moved' };
};
const moved = await Promise.all([
	once(db, 'move-1', {}, transfer(1, 2, 5)), once(other, 'move-2', {}, transfer(2, 1, 15))]);
console.log(`40P01: ${runs > 2 ? 'run again' : runs}, ${show(moved[0])}, ${show(moved[1])}`);

runs = 0;
const slow = async () => {
	runs++;
	await sleep(20);
	const { rows: [{ fence }] } = await other.query(`SELECT fence FROM idem_claim('report', lease => '1 min')`);
	await other.query(`SELECT idem_complete('report', 'the winner''s', fence => $1, code => 201)`, [fence]);
	return { code: 201, response: 'too late' };
};
const report = await once(db, 'report', {}, slow, { lease: '1 ms' });
console.log(`lost claim: ${runs} run, ${show(report)}`);

/* What says the same every time is tried once, and leaves the key free. */
await db.query(`SELECT outcome FROM idem_fire('ticket', $1, 'close', key => 'close-1')`, [1]);
for (const [what, sql] of [
	['stale version', 'UPDATE account SET balance = 0, version = 1 WHERE id = 1'],
	['illegal transition', `UPDATE ticket SET state = 'open' WHERE id = 1`],
	['key of another event', `SELECT outcome FROM idem_fire('ticket', 2, 'close', key => 'close-1')`],
	['no key', 'SELECT run FROM idem_claim(NULL)'],
	['unfinished claim', `SELECT run FROM idem_claim('forgotten')`]
]) {
	runs = 0;
	const code = await once(db, 'once', {}, async () => {
		runs++;
		await db.query(sql);
		return { code: 200, response: 'done' };
	}).then(() => 'none', (error) => error.code);
	console.log(`${what}: ${code}, ${runs} run`);
}
const { rows } = await db.query('SELECT balance FROM account ORDER BY id');
console.log('balances:', rows.map((row) => row.balance).join(' '));
await Promise.all([db.end(), other.end()]);
