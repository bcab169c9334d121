/* shop.js: what the pages do in the browser. */
const $ = (selector) => document.querySelector(selector);
const sleep = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });
const page = JSON.parse(document.body.dataset.page);

function wire(text) {
	const line = document.createElement('li');
	line.textContent = text;
	$('#wire').append(line);
}

/*
 * Sends a request until there is an answer, with the same key each time: after
 * a lost connection nobody knows what has happened, and need not.
 */
async function send(path, body, key) {
	const short = key.slice(0, 8);

	for (;;) {
		let answer, text;
		try {
			answer = await fetch(path, {
				method: 'POST',
				headers: { 'Content-Type': 'application/json', Accept: 'application/json', 'Idempotency-Key': key },
				body: JSON.stringify(body)
			});
			text = await answer.text();
		} catch {
			wire(`${short}…  no answer: again, with the same key`);
			await sleep(400);
			continue;
		}
		const later = answer.headers.get('Retry-After');
		wire(`${short}…  ${answer.status}` + (later ? `, again in ${later} s` :
			answer.headers.get('Idempotency-Replayed') === 'true' ? ', replayed' : ''));
		if (!later)
			return { ok: answer.ok, body: JSON.parse(text), text };
		await sleep(later * 1000);
	}
}

/* A key for one intent, kept through reloads until its answer is there. */
async function once(intent, path, body) {
	const name = `key ${intent}`;
	const kept = JSON.parse(sessionStorage.getItem(name) ?? 'null') ?? { key: crypto.randomUUID(), path, body };

	sessionStorage.setItem(name, JSON.stringify(kept));
	const answer = await send(kept.path, kept.body, kept.key);
	sessionStorage.removeItem(name);
	return answer;
}

async function drawDiagram() {
	$('#diagram').innerHTML = await (await fetch('/diagram.svg')).text();
	$('#mermaid').textContent = await (await fetch('/diagram.mmd')).text();
}

async function showOrder() {
	const order = await (await fetch(`/api/orders/${page.order}`)).json();
	const allowed = order.allowed ?? [];

	$('#state').textContent = order.state;
	$('#state').className = `state ${order.state}`;
	$('#pay').hidden = $('#card').hidden = !['placed', 'paying'].includes(order.state);
	for (const button of document.querySelectorAll('[data-event]'))
		button.hidden = !allowed.includes(button.dataset.event);
	$('#history').replaceChildren(...order.history.map((h) => {
		const row = document.createElement('tr');
		for (const text of [h.event ?? '', `${h.from ?? ''} → ${h.to}`, h.actor ?? ''])
			row.insertCell().textContent = text;
		return row;
	}));
	$('#facts').textContent = `Payments: ${order.payments}. Receipts: ${order.mails}, delivered ${order.deliveries ?? 0}×.`;
}

async function act(intent, path, body) {
	const { ok, body: said } = await once(intent, path, body);

	await Promise.all([showOrder(), drawDiagram()]).catch(() => {});
	$('#verdict').className = ok ? 'good' : 'bad';
	$('#verdict').textContent = said.error ?? `Order ${said.order} is ${said.state}.`;
}

const pages = {
	shop() {},

	order() {
		const path = `/api/orders/${page.order}`;

		/* nothing is disabled: a second click is the same request */
		$('#pay').addEventListener('click', () =>
			act(`pay ${page.order}`, `${path}/payment`, { card: $('#card').value }));
		for (const button of document.querySelectorAll('[data-event]')) {
			const { event } = button.dataset;
			button.addEventListener('click', () => act(`${event} ${page.order}`, `${path}/events/${event}`, {}));
		}
		/* a payment that this tab had begun before it was reloaded */
		if (sessionStorage.getItem(`key pay ${page.order}`))
			act(`pay ${page.order}`);
		const refresh = () => showOrder().catch(() => {});
		refresh();
		setInterval(refresh, 1000);
	},

	async profile() {
		const form = $('#form');
		let version;

		function show(row, etag) {
			version = etag;
			form.address.value = row.address;
			form.phone.value = row.phone;
			$('#version').textContent = `version ${etag.replaceAll('"', '')}`;
		}

		async function save() {
			const mine = { address: form.address.value, phone: form.phone.value };
			const answer = await fetch('/api/profile', {
				method: 'PUT',
				headers: { 'Content-Type': 'application/json', Accept: 'application/json', 'If-Match': version },
				body: JSON.stringify(mine)
			});
			const said = await answer.json();
			const current = answer.headers.get('ETag');

			$('#conflict').hidden = answer.status !== 412;
			$('#verdict').className = answer.ok ? 'good' : 'bad';
			$('#verdict').textContent = answer.ok ? 'Saved.' : `${answer.status}: ${said.error}`;
			if (answer.ok)
				return show(said, current);
			$('#both').replaceChildren(...['address', 'phone'].map((name) => {
				const row = document.createElement('tr');
				for (const text of [name, mine[name], said.current[name]])
					row.insertCell().textContent = text;
				return row;
			}));
			$('#theirs').onclick = () => { show(said.current, current); $('#conflict').hidden = true; };
			$('#mine').onclick = () => { version = current; save(); };
		}

		form.addEventListener('submit', (e) => { e.preventDefault(); save(); });
		const answer = await fetch('/api/profile');
		show(await answer.json(), answer.headers.get('ETag'));
	}
};

pages[page.page]?.();
if ($('#diagram')) {
	const refresh = () => drawDiagram().catch(() => {});
	refresh();
	setInterval(refresh, 2000);
}
