// Tables: columns that sort where their cells have values, rows beyond a limit that a button brings,
// and one tab stop a table, from which the arrow keys walk through its buttons.

const LIMIT = 40;  // rows that stand there at first
const cell = (value, content) => ({value, content: content === undefined ? value : content});
const contentOf = c => c && typeof c === "object" && "content" in c ? c.content : c;

function table(columns, rows, limit) {  // columns: [title, numeric?]; a cell: content, or cell(value, content)
  let shown = limit || LIMIT, order = rows, by = null, down = true;
  const body = h("tbody", {onkeydown: walkTable}), foot = h("p", {class: "dim"}), heads = columns.map(([title, numeric], i) => {
    const sorts = rows.length > 1 && rows.some(r => r[i] && typeof r[i] === "object" && "content" in r[i]);
    const press = () => { down = by === i ? !down : !!numeric; by = i; sort(); };
    return h("th", {class: numeric ? "n" : null, scope: "col"}, sorts ? h("button", {type: "button", class: "sort", onclick: press}, title) : title);
  });
  function sort() {
    const value = r => r[by] && typeof r[by] === "object" && "value" in r[by] ? r[by].value : null;
    const compare = (a, b) => a === b ? 0 : a === null ? 1 : b === null ? -1 : (typeof a === "string" ? a.localeCompare(b, "en", {numeric: true}) : a - b) * (down ? -1 : 1);
    order = rows.map((r, i) => [value(r), i, r]).sort((a, b) => compare(a[0], b[0]) || a[1] - b[1]).map(x => x[2]);
    heads.forEach((e, i) => i === by ? e.setAttribute("aria-sort", down ? "descending" : "ascending") : e.removeAttribute("aria-sort"));
    fill();
  }
  function fill() {
    body.replaceChildren(...order.slice(0, shown).map(r => h("tr", {}, r.map((c, i) => h("td", {class: columns[i][1] ? "n" : null}, contentOf(c))))));
    roving(body);
    const left = order.length - shown;
    foot.replaceChildren(...(left > 0 ? [h("button", {type: "button", class: "rest", onclick: () => { shown = order.length; fill(); }}, `show the other ${left.toLocaleString("en")} rows`)] : []));
  }
  fill();
  return h("div", {class: "wide"}, h("table", {}, h("thead", {}, h("tr", {}, heads)), body), rows.length > shown ? foot : null);
}

function roving(body) { [...body.querySelectorAll("button, a")].forEach((b, i) => b.tabIndex = i ? -1 : 0); }
function walkTable(e) {
  const all = [...e.currentTarget.querySelectorAll("button, a")], at = all.indexOf(document.activeElement);
  if (at < 0) return;
  const row = all[at].closest("tr"), rowsWith = [...e.currentTarget.children].filter(r => r.querySelector("button, a"));
  const beside = by => { const r = rowsWith[rowsWith.indexOf(row) + by]; return r && r.querySelector("button, a"); };
  const to = {ArrowRight: () => all[at + 1], ArrowLeft: () => all[at - 1], ArrowDown: () => beside(1), ArrowUp: () => beside(-1), Home: () => all[0], End: () => all[all.length - 1]}[e.key];
  const next = to && to();
  if (!next) return;
  e.preventDefault();
  all[at].tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}
