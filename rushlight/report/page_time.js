// Where the time goes: stages of compiling, compiled calls, kernels, the timeline.

// ---- time

function limits(r) {  // shares of two limits: what the memory moves, what products compute
  const l = data.limits;
  if (!l || r.host || !r.ns || !(r.moved || r.operations && l.operations_per_ns)) return null;
  return {moved: r.moved / r.ns / l.bytes_per_ns, computed: l.operations_per_ns ? (r.operations || 0) / r.ns / l.operations_per_ns : 0};
}
const limitOf = r => { const l = limits(r); return l && Math.max(l.moved, l.computed); };
function limitShare(r) {  // the nearer of the two
  const at = limits(r), l = data.limits;
  if (!at) return "";
  const sums = at.computed > at.moved || at.moved > 1 && at.computed > .2, share = sums ? at.computed : at.moved;
  const rate = sums ? `${three(r.operations / r.ns)} of ${three(l.operations_per_ns)} GFLOP/s` : `${three(r.moved / r.ns)} of ${three(l.bytes_per_ns)} GB/s`;
  const text = share <= 1 ? `${percent(share)} % of ${sums ? "arithmetic" : "memory"}` : sums ? "all of arithmetic" : "in cache";
  const best = apart(r) >= 2 ? share * apart(r) : 0;
  const why = share > 1 && !sums ? "it moves more than the memory could, so its data come from the processor's cache; " : "";
  return h("span", {title: `${why}${rate}; ${limitsFrom()}`}, h("span", {class: "bar", style: `width:${Math.min(1, share) * 70}px`}), text, h("span", {class: "dim rate"}, ` ${rate}`), best ? h("span", {class: "dim rate busy", title: waited(r)}, best <= 1 ? ` its fastest calls: ${percent(best)} %` : ` its fastest calls: ${three(apart(r))} times as fast`) : null);
}
const percent = share => share < .0095 ? "under 1" : Math.round(share * 100);
// Of the processors' time that the program's threads asked for, what they got, where others took a good part.
function gotOfProcessors() {
  const p = run && run.facts.processors, got = p ? p.ran_ns / (p.ran_ns + p.waited_ns) : 1;
  return got < .9 ? `the machine was busy: the program's threads got ${percent(got)} % of the processors' time that they asked for` : "";
}
// How many times as long its calls took as the fastest with the same layouts; 1 where that says nothing.
const apart = r => r.calls > 2 && r.fastest ? r.ns / r.fastest : 1;
const waited = r => `its calls took ${three(apart(r))} times as long as the fastest of the same shapes`;
const limitsFrom = () => { const l = data.limits; return l.measured ? `the limits are the best that any page measured on this machine since ${l.measured}, kept in ${l.kept}` : "the limits were measured on this machine right after the run"; };
function limitsText() {
  const l = data.limits;
  if (!l) return "";
  return `The limits: ${three(l.bytes_per_ns)} GB/s of memory (copies of 64 MB)` + (l.operations_per_ns ? `, ${three(l.operations_per_ns)} GFLOP/s of arithmetic (products of float32 matrices)` : "") + `; ${limitsFrom()}. A row's share is that of the one it is nearer to; "in cache": faster than the memory, because what it reads was in the processor's cache. Arithmetic is counted of matrix products, convolutions and recurrent layers.`;
}
// Stages of compiling, in the order of the pipeline: what is told of each, and the texts that it leaves.
const COMPILING = {
  capture: ["capture: bytecode to graph, and guards", "dynamo"], functionalise: ["functionalise: writes in place become values", "fx_graph"],
  differentiate: ["differentiate: joint graph, cut into forward and backward", "aot_autograd"], decompose: ["decompose: fewer, simpler operators", "decomposition"],
  take_along: ["pointwise operators joined to library calls", "pass"], move_views: ["views moved out of the way of fusion", "inductor"],
  schedule_nodes: ["fusion: which operators become one kernel", "fusion"], lower_groups: ["loops of each kernel", "loop_ir"],
  build_device_code: ["Triton, for a GPU", "triton_kernels"], place_results: ["results placed into memory that is there", "memory_plan"],
  plan_memory: ["memory plan", "memory_plan"], name_kernels: ["C++ text of the kernels", "cpp_openmp"],
  build_code: ["C++ compiler", "cpp_openmp"], write_wrapper: ["wrapper that calls the kernels", "wrapper"]};
function compileStages() {  // [[stage, ms], ...], costliest first
  const stages = {};
  for (const c of run.captures) { if (c.capture_ms) stages.capture = (stages.capture || 0) + c.capture_ms; for (const [k, v] of Object.entries(c.stage_ms)) stages[k] = (stages[k] || 0) + v; }
  if (!artifacts.some(a => a.stage === "triton_kernels")) delete stages.build_device_code;
  return Object.entries(stages).sort((a, b) => b[1] - a[1]);
}
function stageTitle(stage) {
  const used = run.captures.flatMap(c => c.graphs.map(g => g.compiler)).find(Boolean);
  return (COMPILING[stage] || [stage.replaceAll("_", " ")])[0] + (stage === "build_code" ? ` (${used ? used.split(" ")[0] : "or the artifact cache"})` : "");
}

// forward, backward, or outside graphs: which pass a kernel belongs to.
const passOf = graph => !graph ? "outside graphs" : /(^|_)backward$/.test(graph.name) ? "backward" : "forward";
// The layouts of the variables that a graph's steps make, and the module whose parameters they read.
const factsOf = new Map();
function madeBy(graph) {
  if (factsOf.has(graph)) return factsOf.get(graph);
  const layouts = Object.create(null), modules = Object.create(null);
  for (const a of graph.artifacts) if (a.language === "graph") for (const line of a.text.split("\n")) {
    const m = /^\s+(\w+): (tuple\[(?:[^[\]]|\[[^\]]*\])*\]|\w+\[[^\]]*\])/.exec(line), of = m && /(\w+?____parameters__\w+)/.exec(line);
    if (m) layouts[m[1]] = m[2].startsWith("tuple") ? m[2].slice(6, -1).match(/\w+\[[^\]]*\]/g) || [] : [m[2]];  // of several results, each
    if (of) modules[m[1]] = paramModule(of[1]);
  }
  // A view of a parameter is one of its module too.
  for (const a of graph.artifacts) if (a.language === "graph") for (const line of a.text.split("\n")) {
    const m = /^\s+(\w+): [^=]+ = ops\.\w+\(([^()]*)/.exec(line);
    if (m && !modules[m[1]]) for (const name of m[2].split(/,\s*/)) if (modules[name] && /ops\.(mm|addmm|bmm|linear|convolution|layer_norm|native_layer_norm)/.test(line)) { modules[m[1]] = modules[name]; break; }
  }
  factsOf.set(graph, {layouts, modules});
  return factsOf.get(graph);
}
function result(r) {  // the layouts of its results, and the modules whose parameters it reads
  if (!r.graph || !r.steps.length) return "";
  const facts = madeBy(r.graph), few = (list, n) => list.slice(0, n).join(", ") + (list.length > n ? ` and ${list.length - n} more` : "");
  const layouts = [...new Set(r.steps.flatMap(s => facts.layouts[s.makes[s.makes.length - 1]] || []))];
  const modules = [...new Set(r.steps.flatMap(s => s.makes.map(m => facts.modules[m])).filter(Boolean))];
  return h("span", {title: [...layouts, ...modules].join(", ")}, few(layouts, 2), modules.length ? h("span", {class: "dim rate"}, few(modules, 1)) : "");
}
// The lines of a kernel: the first ones as buttons, the others counted.
const linesOf = r => [ranges(r.lines).slice(0, 3), r.lines.length && ranges(r.lines).length > 3 ? `and ${ranges(r.lines).length - 3} more` : ""];

let kernelFilter = null;  // set by drawTime: which pass the table of kernels shows
function showPass(pass) { kernelFilter(pass); $("kernels").scrollIntoView(); }
function passSums() {
  const sums = new Map();
  for (const pass of ["forward", "backward", "outside graphs"]) sums.set(pass, {rows: 0, calls: 0, ns: 0, first_calls: 0, first_ns: 0});
  for (const r of kernelRows()) if (!r.host) { const s = sums.get(passOf(r.graph)); s.rows++; for (const k of ["calls", "ns", "first_calls", "first_ns"]) s[k] += r[k]; }
  for (const [pass, s] of sums) if (!s.rows) sums.delete(pass);
  return sums;
}
const byOneDnn = r => /oneDNN/.test((codeOfRow(r, true) || {title: ""}).title) && !/^onednn/.test(r.name);
const howText = r => r.how + (byOneDnn(r) ? ", its code by oneDNN" : "") + (r.host ? ", on the CPU" : "");
function drawKernels(add) {
  const rows = kernelRows(), sums = passSums(), body = h("div", {}), bar = h("p", {class: "choices", role: "group", "aria-label": "which kernels"}), told = h("p", {class: "dim"});
  kernelFilter = pass => {
    const kept = rows.filter(r => !pass || passOf(r.graph) === pass), sum = pass ? sums.get(pass) : kernelSums();
    const choice = (name, text) => h("button", {type: "button", "aria-pressed": String((pass || "") === name), onclick: () => kernelFilter(name)}, text);
    bar.replaceChildren(choice("", `all: ${ns(kernelSums().ns)}`), ...[...sums].map(([name, s]) => choice(name, `${name}: ${ns(s.ns)}`)));
    told.textContent = `${kernelSumText(sum)}. A row is what one graph called of a kernel or routine; shares are of this sum. A title sorts. ${limitsText()}${data.limits && gotOfProcessors() ? ` Read them with care: ${gotOfProcessors()}.` : ""}`;
    body.replaceChildren(table([["what"], ["pass, graph"], ["calls", 1], ["time", 1], ["share", 1], ["a call", 1], ["made a plan", 1], ["makes"], ["of the limit"], ["your lines"]],
      kept.map(r => [cell(r.name, [sourceButton(r), h("span", {class: "dim rate"}, howText(r))]), cell(passOf(r.graph) + (r.graph ? r.graph.label : ""), r.graph ? h("span", {class: "keep"}, passOf(r.graph), " ", graphButton(r.graph)) : passOf(r.graph)), cell(r.calls, r.calls.toLocaleString("en")), cell(r.ns, ns(r.ns)),
        cell(r.host ? null : r.ns / (sum.ns || 1), r.host ? "" : `${three(100 * r.ns / (sum.ns || 1))} %`), cell(r.calls ? r.ns / r.calls : null, r.calls ? ns(r.ns / r.calls) : ""), cell(r.first_ns, r.first_calls ? h("span", {title: `${count(r.first_calls, "call")} made a plan first`}, `${r.first_calls}: ${ns(r.first_ns)}`) : ""), result(r), cell(limitOf(r), limitShare(r)), linesOf(r)])));
  };
  kernelFilter("");
  add("Kernels and library routines, costliest first", rows.length ? h("div", {id: "kernels"}, bar, told, body) : none("No kernel ran."));
}
// A graph by its number: Net.forward#3/forward_backward#14 -> #14.
function graphButton(graph) {
  const a = artifacts.find(x => x.graph === graph.label && x.stage === "decomposition") || artifacts.find(x => x.graph === graph.label);
  const text = graph.label.replace(/^.*#/, "#");
  return a ? h("button", {type: "button", title: graph.label, onclick: () => { release(); show("right", a); $("views").scrollIntoView(); }}, text) : h("span", {title: graph.label}, text);
}

// ---- memory: what each graph needs at once, and what is kept from forward to backward

function savedOf(capture) {  // [{name, layout, bytes, parameter}], the largest first
  const found = [];
  for (const a of capture.artifacts) if (a.stage === "aot_autograd" && a.title === "partition") for (const line of a.text.split("\n")) {
    const m = /^saved\s+(\w+): (.*), ([\d,]+) bytes$/.exec(line);
    if (m) found.push({name: m[1], layout: m[2], bytes: +m[3].replaceAll(",", ""), parameter: paramModule(m[1]) !== null});
  }
  return found.sort((a, b) => b.bytes - a.bytes);
}
function memory() {
  const graphs = run.captures.flatMap(c => c.graphs.map(g => [c, g])).filter(([, g]) => g.peak_bytes);
  const saved = run.captures.map(c => [c, savedOf(c)]).filter(([, list]) => list.length);
  const most = graphs.reduce((m, [, g]) => !m || g.peak_bytes > m.peak_bytes ? g : m, null);
  const sum = (list, test) => list.filter(test).reduce((n, s) => n + s.bytes, 0);
  return {graphs, saved, most, sum};
}
function drawMemory(add) {
  const {graphs, saved, sum} = memory();
  if (!graphs.length) return;
  const view = g => artifacts.find(a => a.graph === g.label && a.stage === "memory_plan");
  add("Memory", [h("p", {id: "memory", class: "dim"}, "At once: the most that a call's results and workspace take together; what it was given (inputs, parameters, saved values) comes on top."),
    table([["graph"], ["pass"], ["at once, at most", 1], ["results in all", 1], ["calls", 1], [""]], graphs.sort((a, b) => b[1].peak_bytes - a[1].peak_bytes).map(([, g]) => [cell(g.label), cell(passOf(g)), cell(g.peak_bytes, bytes(g.peak_bytes)), cell(g.total_bytes, bytes(g.total_bytes)), cell(g.calls, String(g.calls)), view(g) ? artifactButton(view(g), "memory plan") : ""]), 12)]);
  add("Saved from forward to backward", saved.length ? saved.map(([c, list]) => h("details", {}, h("summary", {}, h("b", {}, c.unit), `${bytes(sum(list, s => !s.parameter))} of inputs and results in ${count(list.filter(s => !s.parameter).length, "tensor")}, and ${count(list.filter(s => s.parameter).length, "parameter")} (${bytes(sum(list, s => s.parameter))}, which are there anyway)`),
    table([["what"], ["layout"], ["size", 1], ["kind"]], list.map(s => [cell(s.name, savedButton(c, s)), cell(s.layout), cell(s.bytes, bytes(s.bytes)), cell(s.parameter ? "parameter" : "input or result")])))) : none("Nothing: no graph has a backward pass."));
}
function savedButton(c, s) {
  const a = artifacts.find(x => x.unit === c.unit && x.stage === "forward_graph" && x.language === "graph");
  const line = a ? a.lines.findIndex((_, i) => ((a.makes || {})[i + 1] || []).includes(s.name)) : -1;
  const title = s.parameter ? [paramModule(s.name), s.name.replace(/^.*parameters__/, "")].filter(Boolean).join(".") : s.name;
  return line < 0 ? h("span", {class: "mono", title: s.name}, title) : h("button", {type: "button", class: "mono", onclick: () => { show("right", a, line); pin(a, line); $("views").scrollIntoView(); }}, title);
}

function drawTime() {
  if (!run) { put("timebody", none("Give a script: compile time by stage, and each kernel's time, stand here.")); return; }
  const parts = [], add = (title, body) => parts.push(h("h3", {}, title), body);
  const stages = compileStages(), whole = stages.reduce((n, s) => n + s[1], 0), most = Math.max(1e-9, ...stages.map(s => s[1]));
  const left = stage => { const a = artifacts.find(x => x.stage === (COMPILING[stage] || [])[1] && x.unit); return a ? artifactButton(a, "what it left") : ""; };
  if (stages.length) add(`Compiling: ${count(run.captures.length, "capture")}, ${ns(whole * 1e6)}`, table([["stage"], ["time", 1], ["share", 1], [""], [""]], stages.map(([k, v]) => [cell(stageTitle(k), h("span", {title: k}, stageTitle(k))), cell(v, ns(v * 1e6)), cell(v / whole, `${three(100 * v / whole)} %`), h("span", {class: "bar", style: `width:${v / most * 260}px`}), left(k)])));
  if (run.functions.length) add("A call of compiled code", table([["function"], ["calls", 1], ["that captured", 1], ["a call", 1], ["in graphs", 1], ["operators and functions between graphs", 1], ["guards, wrapper, Python", 1], ["called at"]],
    withPieces().map(f => { const n = f.calls - f.misses; return [f.function, String(f.calls), String(f.misses), n ? ns(f.hit_ns / n) : "", n ? ns(f.hit_graph_ns / n) : "", n ? ns(f.hit_called_ns / n) : "", n ? ns(Math.max(0, f.hit_ns - f.hit_graph_ns - f.hit_called_ns) / n) : "", f.where.map(placeButton)]; })));
  drawKernels(add);
  drawMemory(add);
  if (run.facts.gpu_work) add("What the GPU did, longest first", gpuWork(run.facts.gpu_work));
  if (run.facts.gpu_times) parts.push(h("p", {class: "dim"}, gpuTimes(run.facts.gpu_times)));
  add("Timeline", timeline());
  put("timebody", parts);
}
function codeOfRow(r, machine) {  // the artifact with a kernel's source, or with its machine code
  const mine = a => r.how === "generated" ? a.graph === (r.graph || {}).label && (codeOf.get(kernelId(a.graph, r.name)) || new Map()).has(a) : a.kernel === r.name;
  const own = run.device === "gpu" ? [x => x.stage === "triton_kernels", "sass"] : [x => x.language === "cpp", "asm"];
  return machine ? artifacts.find(x => mine(x) && (x.language === own[1] || x.kernel && /^Machine code/.test(x.title))) : artifacts.find(x => mine(x) && own[0](x)) || artifacts.find(mine);
}
// sum.float32.T: the operator, the dtype that it computes in, its operands, further arguments.
const meaning = r => r.how === "eager kernel" ? "operator, dtype, operands (T: a tensor, N: a number), further arguments" : r.how === "generated" ? "generated for this graph: fused, the operators in it, a number" : null;
function sourceButton(r) {
  const a = codeOfRow(r, false), asm = codeOfRow(r, true);
  if (!a) return h("span", {class: "mono", title: meaning(r)}, r.name);
  const go = x => () => showKernel(x, r.name, r.keys);
  return [h("button", {type: "button", class: "mono", title: meaning(r), onclick: go(a)}, r.name), asm ? h("button", {type: "button", class: "code-of", onclick: go(asm)}, "machine code") : null];
}

