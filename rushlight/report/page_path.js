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
      onchange: () => { state[d.id] = o.value; drawPath(); }}), " " + o.label)))));
}

function drawPath() {
  const chosen = selection(), seen = observed();
  const took = seen ? (seen.taken ? "" : ". This run did not take it: what stands here is documented, not observed.") : "";
  $("status").textContent = chosen.status + took;
  drawDiagram(chosen, seen);
  drawSteps(chosen, seen);
  drawStages(chosen, seen);
}

// ---- diagram, steps, stages

function drawDiagram(chosen, seen) {
  const W = 168, H = 44, DX = 190, DY = 68, at = s => [10 + s.position[0] * DX, 10 + s.position[1] * DY];
  const wide = Math.max(...doc.stages.map(s => at(s)[0])) + W + 10, high = Math.max(...doc.stages.map(s => at(s)[1])) + H + 14;
  const told = seen ? Object.fromEntries(seen.stages.map(s => [s.id, s])) : {};
  const toldStep = seen ? Object.fromEntries(seen.steps.map(s => [s.id, s])) : {};
  const svg = h("svg", {viewBox: `0 0 ${wide} ${high}`, width: "100%", role: "img", "aria-label": chosen.status},
    h("defs", {}, h("marker", {id: "tip-end", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto"},
      h("path", {d: "M0 0 L8 4 L0 8 z", fill: "currentColor"}))));
  for (const step of doc.steps) {
    const [x1, y1] = at(stageById[step.from]), [x2, y2] = at(stageById[step.to]);
    const on = chosen.steps.includes(step.id), grey = on && seen && !toldStep[step.id].taken;
    const flat = y1 === y2, a = flat ? [x1 + W, y1 + H / 2] : [x1 + W / 2, y1 + H], b = flat ? [x2, y2 + H / 2] : [x2 + W / 2, y2];
    const my = (a[1] + b[1]) / 2;
    svg.append(h("path", {class: "edge" + (on ? grey ? " grey" : "" : " off"), "marker-end": "url(#tip-end)",
      d: `M${a[0]} ${a[1]} C ${a[0]} ${my}, ${b[0]} ${my}, ${b[0]} ${b[1]}`}, h("title", {}, step.label)));
    if (on) svg.append(h("text", {class: "small", x: (a[0] + b[0]) / 2 + 5, y: my + 3}, step.label));
  }
  for (const s of doc.stages) {
    const [x, y] = at(s), on = chosen.stages.includes(s.id), t = told[s.id];
    const how = !on ? " off" : !seen ? "" : t.taken ? " taken" : " grey";
    const second = on && t && t.taken ? (t.ns ? ns(t.ns) : count(t.count, "time")) : doc.stage_kinds[s.kind];
    svg.append(h("g", {class: `box layer-${s.layer}${how}`, tabindex: on ? 0 : -1, role: "button", "aria-label": s.name,
      onclick: () => openStage(s.id), onkeydown: e => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); openStage(s.id); } }},
      h("rect", {x, y, width: W, height: H}), h("text", {x: x + W / 2, y: y + 19, "text-anchor": "middle"}, s.name),
      h("text", {class: "small", x: x + W / 2, y: y + 34, "text-anchor": "middle"}, second), h("title", {}, t ? t.sentence : s.summary)));
  }
  put("diagram", svg);
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
  const order = [...chosen.stages, ...doc.stages.map(s => s.id).filter(id => !chosen.stages.includes(id))];
  put("stagelist", order.map((id, i) => {
    const s = stageById[id], t = told[id], on = chosen.stages.includes(id), grey = !on || t && !t.taken;
    const mine = artifacts.filter(a => within(a.stage) === id);
    return h("details", {id: "stage-" + id, class: grey ? "grey" : null, open: open.has("stage-" + id)},
      h("summary", {}, h("b", {}, (on ? i + 1 + ". " : "") + s.name), h("span", {class: "tag"}, doc.stage_kinds[s.kind]),
        h("span", {class: "tag"}, layerName(s.layer)), t ? h("span", {class: "tag vendor"}, t.vendor) : null, t && t.taken && t.ns ? h("span", {class: "tag"}, ns(t.ns)) : null, t ? t.sentence : s.summary),
      t ? h("div", {class: "observed"}, h("div", {class: "label"}, t.taken ? "in this run" : "not taken"), h("p", {}, t.sentence),
        t.finer.length ? table([["finer stage"], ["count", 1], ["time", 1], ["what happened"]], t.finer.map(f => [h("span", {title: f.what}, f.id), String(f.count), ns(f.ns), f.sentence])) : null,
        mine.length ? h("p", {}, mine.slice(0, 24).map(a => artifactButton(a)), mine.length > 24 ? ` and ${mine.length - 24} more, under Line by line` : "") : null) : null,
      h("div", {class: "documented"}, h("div", {class: "label"}, "documented"), h("p", {}, s.summary + " " + s.explanation), h("p", {}, "Evidence: " + s.evidence),
        t && t.vendor !== "Rushlight" ? null : h("p", {}, "In Rushlight: " + s.rushlight), h("p", {}, "Sources: ", sourcesOf(s))));
  }));
}
const layerName = id => doc.layers.find(l => l.id === id).name;
