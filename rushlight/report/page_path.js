// The path of the chosen mode and device: selectors, diagram, steps, stages.

// ---- the selectors and what hangs on them

const stageById = Object.fromEntries(doc.stages.map(s => [s.id, s]));
const stepById = Object.fromEntries(doc.steps.map(s => [s.id, s]));
const state = {};
for (const d of doc.dimensions) state[d.id] = run ? run[d.id] : d.default;
if (data.show) Object.assign(state, data.show);

function selection() { return data.selections.find(s => s.mode === state.mode && s.device === state.device); }
function observed() {
  return run ? run.selections.find(s => s.mode === state.mode && s.device === state.device) : null;
}

function drawSelectors() {
  put("selectors", doc.dimensions.map(d => h("fieldset", {}, h("legend", {}, d.legend),
    d.options.map(o => h("label", {}, h("input", {type: "radio", name: d.id, value: o.value, checked: state[d.id] === o.value,
      onchange: () => { state[d.id] = o.value; drawPath(); remember(); }}), " " + o.label)))));
}

function drawPath() {
  const chosen = selection(), all = observed(), seen = all && all.taken ? all : null;
  const why = all && !seen ? [...new Set(all.stages.filter(s => s.on_path && !s.taken).map(s => s.sentence))] : [];
  $("status").textContent = chosen.status + (all && !seen ? `. This run did not take it (${why.join(" ")}): what stands here is documented, not observed.` : "");
  drawDiagram(chosen, seen);
  drawSteps(chosen, seen);
  drawStages(chosen, seen);
}

// ---- diagram, steps, stages

const BOX = {W: 168, H: 42, DX: 190, DY: 61};
function drawDiagram(chosen, seen) {
  const {W, H, DX, DY} = BOX, at = s => [10 + s.position[0] * DX, 10 + s.position[1] * DY];
  const wide = Math.max(...doc.stages.map(s => at(s)[0])) + W + 10, high = Math.max(...doc.stages.map(s => at(s)[1])) + H + 10;
  const told = seen ? Object.fromEntries(seen.stages.map(s => [s.id, s])) : {};
  const toldStep = seen ? Object.fromEntries(seen.steps.map(s => [s.id, s])) : {};
  const svg = h("svg", {viewBox: `0 0 ${wide} ${high}`, width: "100%", role: "img", "aria-label": chosen.status},
    h("defs", {}, h("marker", {id: "tip-end", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto"},
      h("path", {d: "M0 0 L8 4 L0 8 z", fill: "currentColor"}))));
  const labels = [], off = step => chosen.steps.includes(step.id);
  for (const step of [...doc.steps].sort((a, b) => off(a) - off(b))) {  // those of the path lie above
    const on = chosen.steps.includes(step.id), grey = on && seen && !toldStep[step.id].taken;
    const [d, x, y, anchor] = edgeOf(at(stageById[step.from]), at(stageById[step.to]));
    svg.append(h("path", {class: "edge" + (on ? grey ? " grey" : "" : " off"), "marker-end": "url(#tip-end)", d}, h("title", {}, step.label)));
    if (on) labels.push(h("text", {class: "step", x, y, "text-anchor": anchor}, step.label));
  }
  for (const s of doc.stages) {
    const [x, y] = at(s), on = chosen.stages.includes(s.id), t = told[s.id];
    const how = !on ? " off" : !seen ? "" : t.taken ? " taken" : " grey";
    const second = on && t && t.taken ? count(t.count, "time") + (t.ns ? ", " + ns(t.ns) : "") : doc.stage_kinds[s.kind];
    svg.append(h("g", {class: `box layer-${s.layer}${how}`, tabindex: on ? 0 : -1, role: "button", "aria-label": s.name,
      onclick: () => openStage(s.id), onkeydown: e => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); openStage(s.id); } }},
      h("rect", {x, y, width: W, height: H}), h("text", {x: x + W / 2, y: y + 18, "text-anchor": "middle"}, s.name),
      h("text", {class: "small", x: x + W / 2, y: y + 33, "text-anchor": "middle"}, second), h("title", {}, t ? t.sentence : s.summary)));
  }
  svg.append(...labels);
  put("diagram", svg);
}
// [path, label's x, y, anchor] of the line between two boxes, which runs around others: down from one to
// the next; or, up to a box that stands higher, along the row of the first and then into it from below.
function edgeOf([x1, y1], [x2, y2]) {
  const {W, H} = BOX;
  if (y2 < y1) {
    const x = x2 + W * .75, y = y1 + H / 2;
    return [`M${x1} ${y} L${x + 8} ${y} Q${x} ${y} ${x} ${y - 8} L${x} ${y2 + H}`, (x + x1) / 2, y - 5, "middle"];
  }
  const a = [x1 + W / 2, y1 + H], b = [x2 + W / 2, y2];
  if (a[0] === b[0]) return [`M${a[0]} ${a[1]} L${b[0]} ${b[1]}`, a[0] + 6, (a[1] + b[1]) / 2 + 4, "start"];
  if (y2 - y1 < 1.5 * BOX.DY) {
    const my = (a[1] + b[1]) / 2, r = 6, s = Math.sign(b[0] - a[0]);
    return [`M${a[0]} ${a[1]} L${a[0]} ${my - r} Q${a[0]} ${my} ${a[0] + s * r} ${my} L${b[0] - s * r} ${my} Q${b[0]} ${my} ${b[0]} ${my + r} L${b[0]} ${b[1]}`, b[0] + s * 6, my + (s > 0 ? 4 : 4), s > 0 ? "start" : "end"];
  }
  const bend = b[1] - 30;  // far down: straight, then over to the box just above it
  return [`M${a[0]} ${a[1]} L${a[0]} ${bend - 14} C ${a[0]} ${b[1] - 6}, ${b[0]} ${bend - 6}, ${b[0]} ${b[1]}`, a[0] + 6, a[1] + 34, "start"];
}

function openStage(id) {
  const d = $("stage-" + id);
  if (d) { d.open = true; d.scrollIntoView({block: "start"}); d.querySelector("summary").focus({preventScroll: true}); }
}

const sourcesOf = item => item.sources.map(k => h("a", {href: doc.sources[k].url, rel: "noreferrer", title: "checked " + doc.sources[k].checked}, doc.sources[k].title))
  .flatMap((a, i) => i ? [", ", a] : [a]);

function drawSteps(chosen, seen) {
  const told = seen ? Object.fromEntries(seen.steps.map(s => [s.id, s])) : {};
  const rank = Object.fromEntries(chosen.stages.map((id, i) => [id, i]));
  const ordered = [...chosen.steps].sort((a, b) => rank[stepById[a].from] - rank[stepById[b].from] || rank[stepById[a].to] - rank[stepById[b].to]);
  put("steps", ordered.map(id => {
    const s = stepById[id], t = told[id], grey = t && !t.taken;
    return h("li", {class: grey ? "grey" : null}, h("b", {}, stageById[s.from].name), ` ${s.label} `, h("b", {}, stageById[s.to].name), ". ",
      s.summary, t && t.sentence ? h("span", {class: "tag"}, t.sentence) : null, grey ? h("span", {class: "tag"}, "not in this run") : null);
  }));
}

function drawStages(chosen, seen) {
  const told = seen ? Object.fromEntries(seen.stages.map(s => [s.id, s])) : {};
  const open = new Set([...document.querySelectorAll("#stagelist details[open]")].map(d => d.id));
  const vendors = new Set(seen ? seen.stages.map(x => x.vendor) : []);  // said where there is more than one
  const order = [...chosen.stages, ...doc.stages.map(s => s.id).filter(id => !chosen.stages.includes(id))];
  put("stagelist", order.map((id, i) => {
    const s = stageById[id], t = told[id], on = chosen.stages.includes(id), grey = !on || t && !t.taken;
    const mine = artifacts.filter(a => within(a.stage) === id);
    return h("details", {id: "stage-" + id, class: grey ? "grey" : null, open: open.has("stage-" + id)},
      h("summary", {}, h("b", {}, (on ? i + 1 + ". " : "") + s.name), h("span", {class: "tag"}, doc.stage_kinds[s.kind]),
        layerName(s.layer).toLowerCase() === doc.stage_kinds[s.kind].toLowerCase() ? null : h("span", {class: "tag"}, layerName(s.layer)), t && vendors.size > 1 ? h("span", {class: "tag vendor"}, t.vendor) : null, t && t.taken && t.ns ? h("span", {class: "tag"}, ns(t.ns)) : null, t ? t.sentence : s.summary),
      t ? h("div", {class: "observed"}, h("div", {class: "label"}, t.taken ? "in this run" : "not taken"), h("p", {}, t.sentence),
        t.finer.length ? table([["finer stage"], ["count", 1], ["time", 1], ["what happened"]], t.finer.map(f => [h("span", {title: f.what}, f.id), String(f.count), ns(f.ns), f.sentence])) : null,
        mine.length ? h("p", {}, byTitle(mine)) : null) : null,
      h("div", {class: "documented"}, h("div", {class: "label"}, "documented"), h("p", {}, s.summary + " " + s.explanation), h("p", {}, "Evidence: " + s.evidence),
        t && t.vendor !== "Rushlight" ? null : h("p", {}, "In Rushlight: " + s.rushlight), h("p", {}, "Sources: ", sourcesOf(s))));
  }));
}
// One button a title; where several texts have it, a menu with all.
function byTitle(list) {
  const titles = new Map();
  for (const a of list) { if (!titles.has(a.title)) titles.set(a.title, []); titles.get(a.title).push(a); }
  return [...titles].map(([title, all]) => [artifactButton(all[0], title), all.length > 1 ? h("button", {type: "button", class: "more", "aria-haspopup": "true", title: `all ${all.length} of them`, onclick: e => openMenu(e.currentTarget, all, () => $("views").scrollIntoView())}, `${all.length}\u25be`) : null]);
}
const layerName = id => doc.layers.find(l => l.id === id).name;
