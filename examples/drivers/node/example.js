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
	{ lease = null, wait = '2 s', pause = (s) => sleep(s * 1000), tries = 10 } = {}) {
	while (tries-- > 0) {
		let answer;

		try {
			if (!lease)
				await db.query('BEGIN');
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

const sqlstate = (query) => query.then(() => 'none', (error) => error.code);
const show = ({ code, response, replayed }) => `${code} ${response}${replayed ? ' (replayed)' : ''}`;

function charge(amount, fails) {
	const work = async (db) => {
		work.runs++;
		const { rows: [{ balance }] } = await db.query(
			'UPDATE account SET balance = balance - $1 WHERE id = 1 RETURNING balance', [amount]);
		if (fails && work.runs === 1)
			await db.query(`DO $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = '${fails}'; END $$`);
		return { code: 201, response: `{"balance": ${balance}}` };
	};
	return Object.assign(work, { runs: 0 });
}

const [db, other] = [new pg.Client(), new pg.Client()];
await Promise.all([db.connect(), other.connect()]);

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

for (const [n, code] of ['40001', '40P01'].entries()) {
	const work = charge(10, code);
	const answer = show(await once(db, `pay-${n + 3}`, {}, work));
	console.log(`${code}: ${work.runs} runs, ${answer}`);
}

const slow = async () => {
	await sleep(20);
	const { rows: [{ fence }] } = await other.query(`SELECT fence FROM idem_claim('report', lease => '1 min')`);
	await other.query(`SELECT idem_complete('report', 'the winner''s', fence => $1, code => 201)`, [fence]);
	return { code: 201, response: 'too late' };
};
console.log('lost claim:', show(await once(db, 'report', {}, slow, { lease: '1 ms' })));

console.log('stale version:', await sqlstate(
	db.query('UPDATE account SET balance = 0, version = $1 WHERE id = $2', [1, 1])));
await db.query(`SELECT outcome FROM idem_fire('ticket', $1, 'close')`, [1]);
console.log('illegal transition:', await sqlstate(db.query(`UPDATE ticket SET state = 'open' WHERE id = $1`, [1])));
console.log('no key:', await sqlstate(db.query('SELECT run FROM idem_claim($1)', [null])));
await db.query('BEGIN');
await db.query(`SELECT run FROM idem_claim('forgotten')`);
console.log('unfinished claim:', await sqlstate(db.query('COMMIT')));
console.log('balance:', (await db.query('SELECT balance FROM account')).rows[0].balance);
await Promise.all([db.end(), other.end()]);
