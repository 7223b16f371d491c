// The search: under the field, whatever the page is scrolled to. It finds stages, headings, rows of
// tables, kernels, titles of views, lines of the user's source by number, and lines of every view,
// grouped by view. ArrowDown goes into the hits, Enter takes the first one.

const AT_FIRST = 8;  // hits of a group that are shown at first

function search(words) {
  const box = $("found");
  box.hidden = !words;
  if (!words) return;
  const low = words.toLowerCase(), has = text => text.toLowerCase().includes(low);
  const groups = [linesByNumber(words), ["Kernels and routines", kernelHits(has)], ["Stages", stageHits(has)], ["On this page", pageHits(has)],
    ["Views", artifacts.filter(a => has(a.title) || has(kindOf(a))).map(a => [a.title, a.group, () => toView(a)])]].filter(g => g && g[1].length);
  const inViews = artifacts.map(a => [a, a.lines.flatMap((line, i) => has(line) ? [i] : [])]).filter(([, lines]) => lines.length);
  const all = groups.reduce((n, g) => n + g[1].length, 0) + inViews.reduce((n, v) => n + v[1].length, 0);
  box.replaceChildren(h("p", {class: "dim", role: "status"}, count(all, "hit") + (all ? ". Arrow keys walk, Enter opens, Escape closes." : ": nothing has it.")),
    ...groups.map(([title, hits]) => group(title, hits.map(([text, rest, go]) => hit(text, rest, go, low)))),
    ...kinds(inViews).map(([kind, views], n) => h("details", {open: n === 0 || inViews.length < 4}, h("summary", {}, h("b", {}, `Lines: ${kind}`), count(views.reduce((n, v) => n + v[1].length, 0), "line") + " in " + count(views.length, "view")),
      group("", views.flatMap(([a, lines]) => lines.slice(0, 40).map(i => hit(`${a.title}:${i + 1}`, a.lines[i].trim(), () => { toView(a, i); pin(a, i); }, low, a.group)))))));
}
function kinds(views) {
  const made = new Map();
  for (const v of views) { const kind = kindOf(v[0]); if (!made.has(kind)) made.set(kind, []); made.get(kind).push(v); }
  return [...made];
}
function group(title, hits) {
  const list = h("ul", {}, hits.slice(0, AT_FIRST));
  if (hits.length > AT_FIRST) list.append(h("li", {}, h("button", {type: "button", class: "rest", onclick: e => { e.currentTarget.parentElement.replaceWith(...hits.slice(AT_FIRST)); list.children[AT_FIRST].querySelector("button").focus(); }}, `and ${hits.length - AT_FIRST} more`)));
  return h("div", {}, title ? h("h3", {}, title) : null, list);
}
function hit(text, rest, go, low, title) {
  return h("li", {}, h("button", {type: "button", title, onclick: () => { leave(); go(); if (pinned) $("left").querySelector(".code").focus({preventScroll: true}); }}, text), h("span", {class: "mono"}, marked(rest, low)));
}
function marked(text, low) {  // what stands around the first place that has it, at words' ends
  const at = text.toLowerCase().indexOf(low);
  if (at < 0) return text.length > 120 ? text.slice(0, 120).replace(/\S*$/, "\u2026") : text;
  const before = at > 60 ? "\u2026" + text.slice(at - 50, at).replace(/^\S*\s?/, "") : text.slice(0, at), after = text.slice(at + low.length);
  return [before, h("mark", {}, text.slice(at, at + low.length)), after.length > 90 ? after.slice(0, 90).replace(/\S*$/, "\u2026") : after];
}
function toView(a, line) { show("right", a, line); $("views").scrollIntoView(); }
function leave() { $("found").hidden = true; $("search").value = ""; $("search").blur(); }

function linesByNumber(words) {
  const m = /^(?:(.*):|line\s+)(\d+)$/.exec(words);
  if (!m) return null;
  const found = artifacts.filter(a => a.user && (!m[1] || a.user.includes(m[1])) && a.lines[m[2] - 1] !== undefined);
  return ["Your lines", found.map(a => [`${a.user}:${m[2]}`, a.lines[m[2] - 1].trim(), () => showLines(a, m[2] - 1, m[2] - 1)])];
}
function kernelHits(has) {
  const found = new Map();
  if (run) for (const r of kernelRows()) if (has(r.name) || has(r.how)) {
    const key = r.name + r.how, one = found.get(key) || found.set(key, {r, calls: 0, ns: 0}).get(key);
    one.calls += r.calls; one.ns += r.ns;
  }
  return [...found.values()].map(({r, calls, ns: spent}) => [r.name, `${r.how}, ${count(calls, "call")}, ${ns(spent)}`, () => {
    const code = codeOfRow(r, false);
    if (code) showKernel(code, r.name, r.keys); else { showPass(passOf(r.graph)); showRow(r.name); }
  }]);
}
function showRow(text) {
  const row = [...document.querySelectorAll("#kernels tbody tr")].find(e => e.firstChild.textContent.includes(text));
  if (row) { row.scrollIntoView({block: "center"}); flash(row); }
}
function flash(e) { e.classList.add("flash"); setTimeout(() => e.classList.remove("flash"), 2500); }
const stageHits = has => doc.stages.filter(s => has(s.name + " " + s.summary + " " + s.explanation)).map(s => [s.name, s.summary, () => openStage(s.id)]);
function pageHits(has) {
  const where = e => { const s = e.closest("section"); return s ? s.querySelector("h2").textContent : ""; };
  const heads = [...document.querySelectorAll("main h2, main h3")].filter(e => has(e.textContent)).map(e => [e.textContent, where(e), () => to(e)]);
  const rows = [...document.querySelectorAll("#short dt, #short li, #why tbody tr, #time tbody tr")].filter(e => !e.closest("#kernels") && has(e.textContent));
  return [...heads, ...rows.map(e => [where(e), e.tagName === "DT" ? e.textContent : [...e.children].length && e.tagName === "TR" ? [...e.children].map(c => c.textContent).join(" \u00b7 ") : e.textContent, () => to(e)])];
}
function to(e) {
  const fold = e.closest("details");
  if (fold) fold.open = true;
  e.scrollIntoView({block: "center"});
  flash(e);
}

function startSearch() {
  let wait = 0;
  const field = $("search"), box = $("found");
  field.addEventListener("input", e => { clearTimeout(wait); wait = setTimeout(() => search(e.target.value.trim()), 120); });
  const steps = () => [...box.querySelectorAll("button, summary")].filter(e => e.getClientRects().length);
  const walk = e => {
    if (e.key === "/" && e.currentTarget === field && !field.value) { e.preventDefault(); return; }  // the key that leads here
    if (e.key === "Enter" && e.currentTarget === field) { clearTimeout(wait); search(field.value.trim()); const first = box.querySelector("li button"); if (first && !box.hidden) first.click(); return; }
    const by = {ArrowDown: 1, ArrowUp: -1}[e.key];
    if (!by || box.hidden) return;
    e.preventDefault();
    const all = steps(), next = all.indexOf(document.activeElement) + by;
    if (next < 0) field.focus(); else if (all[next]) all[next].focus();
  };
  field.addEventListener("keydown", walk);
  box.addEventListener("keydown", walk);
  document.addEventListener("click", e => { if (!e.target.closest("#found, .search") && e.target.isConnected) box.hidden = true; });
}
