/* pages.js: the shop's HTML. */
const escape = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

const frame = (customer, title, main, data = {}) => `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>${escape(title)}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/static/shop.css">
<script type="module" src="/static/shop.js"></script>
</head>
<body data-page='${escape(JSON.stringify(data))}'>
<header><a href="/">Tea &amp; Pots</a><span><a href="/profile" id="profile">${escape(customer)}</a></span></header>
<main>${main}</main>
</body>
</html>`;

const diagram = `<section class="wide"><h2>All orders</h2>
<div id="diagram" role="img" aria-label="The states of an order and how many orders are in each"></div>
<details><summary>The same as Mermaid</summary><pre id="mermaid"></pre></details></section>`;

export const shop = (customer, products, orders, token) => frame(customer, 'Tea & Pots', `
<section><h1>Basket</h1>
<form method="post" action="/orders" id="basket">
<input type="hidden" name="token" value="${escape(token)}">
<table>${products.map((p) => `<tr><td><label for="${p.id}">${escape(p.name)}</label></td><td class="n">${p.price}</td>
<td><input id="${p.id}" name="${p.id}" type="number" min="0" max="9" value="${p.id === 'tea' ? 1 : 0}"></td></tr>`).join('')}</table>
<button>Order</button>
</form></section>
<section><h1>Your orders</h1>
<table id="orders">${orders.map((o) => `<tr><td><a href="/orders/${o.id}">Order ${o.id}</a></td>
<td class="n">${o.total}</td><td><span class="state ${o.state}">${o.state}</span></td></tr>`).join('')}</table></section>
${diagram}`, { page: 'shop' });

export const order = (customer, o) => frame(customer, `Order ${o.id}`, `
<section><h1>Order ${o.id} <span class="state ${o.state}" id="state">${o.state}</span></h1>
<table>${o.items.map((i) => `<tr><td>${i.count} × ${escape(i.name)}</td><td class="n">${(i.price * i.count).toFixed(2)}</td></tr>`).join('')}
<tr class="sum"><td>Total</td><td class="n">${o.total}</td></tr></table>
<p id="actions"><select id="card" aria-label="Card"><option value="good">Card ending in 4242</option>
<option value="slow">Card ending in 5000, slow to answer</option><option value="declined">Card ending in 0002, declined</option></select>
<button id="pay">Pay ${o.total}</button> <button data-event="cancel">Cancel</button> <button data-event="ship">Ship</button></p>
<p id="verdict" role="status"></p></section>
<section><h2>On the wire</h2><ol id="wire"></ol>
<h2>History</h2><table id="history"></table><p id="facts"></p></section>
${diagram}`, { page: 'order', order: o.id });

export const profile = (customer) => frame(customer, 'Profile', `
<section><h1>Profile of ${escape(customer)} <small id="version"></small></h1>
<form id="form"><label>Address <input name="address" required></label><label>Phone <input name="phone" required></label>
<button>Save</button></form><p id="verdict" role="status"></p></section>
<section id="conflict" hidden><h2>Somebody else has saved first</h2>
<table><thead><tr><th></th><th>Yours</th><th>Theirs</th></tr></thead><tbody id="both"></tbody></table>
<button id="theirs">Take theirs</button> <button id="mine">Save mine over it</button></section>`, { page: 'profile' });

/* The response, with problem()'s JSON shown as a page. */
export const asHtml = (res) => Object.assign(Object.create(res), {
	status(code) { res.status(code); return this; },
	set(...header) { res.set(...header); return this; },
	json: (body) => res.type('html').send(frame('', 'Sorry', `<section><h1>${res.statusCode}</h1>
<p id="problem">${escape(body.error)}</p><p><a href="/">Back to the shop</a></p></section>`))
});
