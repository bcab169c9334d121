/*
 * consumer.js: mails what table message asks for.  A queue delivers at least
 * once: this one hands out a message again until it is acknowledged, and the
 * acknowledgement comes after the work and may be lost.  idem_once() in the
 * transaction of the work makes the second delivery do nothing.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { transaction } from './idempotency.js';

async function deliver(pool, message) {
	await transaction(pool, async (db) => {
		const { rows } = await db.query(`SELECT idem_once($1, 'mails') AS first`, [`message-${message.id}`]);

		if (rows[0].first)
			await db.query('INSERT INTO mail (message_id, recipient, subject) VALUES ($1, $2, $3)',
				[message.id, message.body.customer, message.body.subject]);
	});
}

export async function consume(pool) {
	for (;;) {
		try {
			const { rows } = await pool.query(`UPDATE message SET deliveries = deliveries + 1
				WHERE NOT acknowledged RETURNING id, body`);

			for (const message of rows) {
				await deliver(pool, message);
				await pool.query('UPDATE message SET acknowledged = true WHERE id = $1', [message.id]);
			}
		} catch (error) {
			console.error(`consumer: ${error.message}`);
		}
		await sleep(300);
	}
}
