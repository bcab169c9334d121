/*
 * verbs.js: runs verbs.txt with node-postgres, and prints each answer.
 *
 *     node verbs.js VERBS prepared|plain
 *
 * The package "pg" is found from the folder in NODE_PATH.
 */
'use strict';

const fs = require('fs');
const pg = require('pg');

const [file, mode] = process.argv.slice(2);
const last = {};
const BIND = {
	null: () => null,
	text: (s) => s.replaceAll('\\n', '\n'),
	int: Number,
	bigint: String,		/* as it comes back: a number would lose digits */
	bool: (s) => s === 'true',
	json: (s) => s,		/* an object will do; an array would be sent as PostgreSQL's */
	interval: (s) => `${s} s`,
	time: (s) => new Date(s),
	texts: (s) => s.split(','),
	ints: (s) => s.split(',').map(Number),
	last: (s) => last[s]
};

function bind(parameter) {
	const [, kind, value] = /^(\w+) ?([^]*)$/.exec(parameter);
	const bound = BIND[kind](value);

	return kind === 'json' && value.startsWith('{') ? JSON.parse(value) : bound;
}

function show(value) {
	if (value === null)
		return '';
	if (value === true || value === false)
		return String(value)[0];
	if (value instanceof Date)
		return 'time';
	return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

async function main() {
	const db = new pg.Client();

	await db.connect();
	for (const [i, line] of fs.readFileSync(file, 'utf8').split('\n').entries()) {
		if (line === '' || line.startsWith('#'))
			continue;
		const parts = line.split('##')[0].split('`');
		const text = parts.filter((_, n) => n % 2 === 0).reduce((a, b, n) => `${a}$${n}${b}`);

		try {
			const values = parts.filter((_, n) => n % 2 === 1).map(bind);
			const { rows } = await db.query(mode === 'prepared' ? { text, values, name: `s${i}` } : { text, values });

			Object.assign(last, rows[0]);
			console.log(rows.map((row) => Object.values(row).map(show).join('|')).join('/'));
		} catch (error) {
			console.log(`ERROR ${error.code}`);
			console.error(error.message);
		}
	}
	await db.end();
}

main();
