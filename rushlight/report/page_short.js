// In short: the answers that most people open the page for, and what
// they rest on. Function declarations only.

// What became of each line of the user's files; a line can be several of these.
const MARKS = {compiled: ["c", "compiled"], traced: ["t", "captured, and needed no kernel"], ran: ["r", "ran compiled code"], broke: ["b", "the graph broke here"],
  eager: ["e", "called operators one at a time"], waits: ["w", "reads a tensor's value"]};
function markSources() {
  const marks = new Map();
  const mark = (where, kind) => {
    for (const m of (where || "").matchAll(/(?:^|\n\s+in )(.*?):(\d+)/g)) {  // the line, and those that called it
      const a = artifacts.find(x => x.user && (x.user === m[1] || x.path === m[1]));
      if (!a) continue;
      if (!marks.has(a)) marks.set(a, new Map());
      const lines = marks.get(a), line = +m[2] - 1;
      if (!lines.has(line)) lines.set(line, new Set());
      lines.get(line).add(kind);
    }
  };
  if (!run) return;
  for (const c of run.captures) {
    for (const g of c.graphs) for (const s of g.steps) for (const l of s.lines) mark(l, "compiled");
    for (const l of c.inlined || []) mark(l, "traced");
    for (const g of c.graphs) for (const l of g.called_at || []) mark(l, "ran");
    for (const b of c.breaks) for (const l of [b.where, ...(b.via || [])]) mark(l, "broke");
    for (const a of artifacts) if (a.unit === c.unit && a.stage === "dynamo" && a.language === "bytecode")
      a.lines.forEach((row, i) => { if (/^.{5} >/.test(row) && !/ (RESUME|NOP|COPY_FREE_VARS)\b/.test(row)) mark(((a.origins || {})[i + 1] || [])[0], "traced"); });
  }
  for (const f of run.functions) for (const l of f.where) mark(l, "ran");
  for (const row of run.lines) mark(row.where, "eager");
  for (const r of [...(run.facts.waits || []), ...(run.facts.reads || [])]) mark(r.line, "waits");
  for (const [a, lines] of marks) {
    for (const kinds of lines.values()) if (kinds.has("compiled")) kinds.delete("traced");
    a.marks = lines;
  }
}
function marksOf(a, i) {
  const kinds = a.marks && a.marks.get(i) || new Set();
  return h("span", {class: "marks", title: [...kinds].map(k => MARKS[k][1]).join("; ") || null}, Object.keys(MARKS).filter(k => kinds.has(k)).map(k => h("i", {class: k}, MARKS[k][0])));
}

// One row for each kernel or routine and graph (none: what ran outside graphs), costliest first. Calls
// that made a plan are apart: first_calls, first_ns.
function kernelRows() {
  const graphs = new Map(run.captures.flatMap(c => c.graphs.map(g => [g.label, [c, g]])));
  return run.costs.flatMap(k => k.parts.map(p => costRow(k, p, graphs.get(p.graph)))).sort((a, b) => a.host - b.host || b.ns - a.ns || b.first_ns - a.first_ns);
}
function costRow(k, p, [c, g] = []) {
  const steps = g ? p.steps.map(i => g.steps[i]) : [];
  const keys = g ? steps.flatMap(s => stepKeysOf(c, s)) : p.lines.flatMap(l => { const at = placeOf(l); return at ? [`L|${at[0].user}:${at[1] + 1}`] : []; });
  return {name: k.name, how: k.how, host: k.host, graph: g, calls: p.calls, ns: p.ns, first_calls: p.first_calls, first_ns: p.first_ns, moved: p.moved_bytes, operations: p.operations, fastest: p.fastest_ns,
    lines: p.lines, steps, keys: [...new Set(keys)]};
}
// All of them but the CPU's in a run of a GPU: {calls, ns} of calls that had their plan, {first_calls,
// first_ns} of those that made it.
function kernelSums() {
  const sum = name => run.costs.reduce((n, k) => n + (k.host ? 0 : k[name]), 0);
  return {calls: sum("calls"), ns: sum("ns"), first_calls: sum("first_calls"), first_ns: sum("first_ns")};
}
const firstCalls = s => s.first_calls ? `${ns(s.first_ns)} in ${count(s.first_calls, "call")} that made a plan first` : "";
const kernelSumText = s => `${ns(s.ns)} in ${count(s.calls, "call")} of kernels and library routines` + (s.first_calls ? `, and ${firstCalls(s)}` : "");

// One entry a recompile, equal ones counted.
const recompiles = () => tally(run.captures.filter(c => c.recompiles.length).map(c => ({...c.recompiles[0], why: c.recompiled || c.recompiles[0].why, what: c.function})));

const PIECE = /, (after the break at|from) line (\d+)/;
// Functions by time, each with its pieces behind it in the order of their lines.
function withPieces() {
  const base = f => f.function.replace(/, (after the break at|from) line .*/s, ""), line = f => +(PIECE.exec(f.function) || [0, 0, 0])[2];
  const order = [...new Set(run.functions.map(base))];
  return [...run.functions].sort((a, b) => order.indexOf(base(a)) - order.indexOf(base(b)) || line(a) - line(b));
}
// What a call takes, of each compiled function: a piece behind a break runs after what stands before
// it, as a call of its own.
function callTimes() {
  const each = f => f.hit_ns / (f.calls - f.misses);
  return run.functions.filter(f => f.calls > f.misses && !PIECE.test(f.function)).map(f => {
    const pieces = run.functions.filter(x => x.function.startsWith(f.function + ", ") && PIECE.test(x.function)), warm = pieces.filter(x => x.calls > x.misses);
    if (!pieces.length) return `a call of ${f.function} takes ${ns(each(f))} once it is compiled`;
    if (run.vendor !== "Rushlight") return `a call of ${f.function} takes ${ns(each(f))} up to its first break, once it is compiled`;  // whose pieces may lie inside one another
    const sum = warm.reduce((n, x) => n + each(x) * x.calls / f.calls, each(f));
    return `a call of ${f.function} takes ${warm.length < pieces.length ? "at least " : ""}${ns(sum)} with what stands behind its breaks, once all is compiled`;
  });
}
const nameOnGpu = a => a.title.replace(/^.*?: /, "").split(",")[0];
function besideItsCode(a) {  // a Triton kernel, and the machine code that it became
  const code = artifacts.find(x => x.stage === "gpu_machine_code" && x.graph === a.graph && nameOnGpu(x) === nameOnGpu(a));
  show("left", a);
  if (code) show("right", code);
  $("views").scrollIntoView();
}
const readAt = r => / \(read at |^(grad mode|inference mode|autocast|a mode of dispatch|the default device) was /.test(r.why) ? ", in the call at " : ", read at ";
// [recompile, those behind it of the same change in other functions and pieces]: 16 became 24, say.
function grouped(list) {
  const groups = [], change = why => (/ (was .*?, now .*?)(?: \(another|$)/s.exec(why) || [])[1];
  for (const r of list) {
    const same = change(r.why), first = same && groups.find(([g]) => change(g.why) === same && /\.(shape|size)/.test(g.why) && /\.(shape|size)/.test(r.why));
    if (first) first[1].push(r); else groups.push([r, []]);
  }
  return groups;
}

// ---- in short: the answers that most people open the page for

function ranges(places) {  // file:line, ... -> one button for each run of neighbouring lines
  const files = new Map();
  for (const p of new Set(places)) {
    const m = /^(.*?):(\d+)/.exec(p);
    if (m) { if (!files.has(m[1])) files.set(m[1], []); files.get(m[1]).push(+m[2]); }
  }
  const found = [], library = f => { const a = artifacts.find(x => x.user === f || x.path === f); return !a || /(site|dist)-packages/.test(a.path || ""); };
  const rank = ([f]) => shortPath(f).split("/").pop() === run.program ? 0 : library(f) ? 2 : 1;  // the script, other files of the user's, libraries
  for (const [file, lines] of [...files].sort((a, b) => rank(a) - rank(b))) {
    lines.sort((a, b) => a - b);
    for (let i = 0; i < lines.length;) {
      let j = i;
      while (j + 1 < lines.length && lines[j + 1] - lines[j] <= 1) j++;
      found.push([`${file}:${lines[i]}`, lines[i] === lines[j] ? "" : `-${lines[j]}`]);
      i = j + 1;
    }
  }
  return found.map(([place, more]) => placeButton(place, more));
}
// The first ones, and a button that brings the others.
function some(items, n) {
  if (items.length <= n + 1) return items;
  const rest = h("button", {type: "button", class: "rest", onclick: () => { const next = items[n]; rest.replaceWith(...items.slice(n)); (next.querySelector("button") || next).focus(); }}, `and ${items.length - n} more`);
  return [...items.slice(0, n), rest];
}
// Where the longest kernel ran outside graphs, the longest inside them: what compiling is about.
function longestCompiled(longest, all) {
  const row = longest.parts.some(p => p.graph) ? null : kernelRows().find(r => r.graph && !r.host && r.ns);
  return row ? ["Longest in compiled code: ", sourceButton(row), `, ${ns(row.ns)} in ${count(row.calls, "call")}, ${percent(row.ns / all.ns)} %`, row.lines.length ? [", from ", some(ranges(row.lines), 6)] : "", ". "] : "";
}
// Why a share says little of the kernel: others had the processors, calls differ.
function busy(row) {
  const said = [gotOfProcessors(), apart(row) >= 2 ? waited(row) : ""].filter(Boolean).join("; ");
  return said ? h("b", {class: "busy"}, `${said[0].toUpperCase()}${said.slice(1)}. `) : "";
}
const FEW = 24;  // places that stand there at first
function drawShort() {
  if (!run) return;
  const rows = [], add = (title, ...body) => rows.push(h("dt", {}, title), h("dd", {}, body));
  const list = (items, n) => h("ul", {}, some(items.map(i => h("li", {}, i)), n));
  const made = run.captures.flatMap(c => c.graphs), compiled = made.flatMap(g => g.steps.flatMap(s => s.lines));
  if (compiled.length) compiled.push(...made.flatMap(g => g.absorbed.map(a => a.origins.split(" > ")[0]).filter(l => !l.includes(" "))));  // views, which need no step
  const skipped = tally(run.refusals.filter(r => /^fallback\.(graph|tape|recurrent|sizes|aliasing)$|^capture\.(skip|recompile_limit)/.test(r.id)));
  const breaks = distinctBreaks();
  const calledAt = run.functions.filter(f => run.captures.some(c => c.function === f.function && c.graphs.length)).flatMap(f => f.where);
  if (compiled.length) add("Compiled lines", some(ranges(compiled), FEW));
  else if (calledAt.length) add("Compiled lines", "none of your own, but what is called at ", some(ranges(calledAt), FEW));
  else add("Compiled lines", run.captures.length || run.functions.length ? "none of them" : "none: nothing was compiled in this run. torch.compile(model) or --mode compile does it.");
  const why = [...breaks, ...skipped], captured = run.captures.length > 0;
  if (captured && !why.length) add("Not compiled", "nothing: each capture took its function whole.");
  else if (why.length) add("Not compiled", list(why.map(b => [placeButton(b.where), b.via && b.via.length ? [" (called from ", b.via.map(l => [placeButton(l), " "]).flat().slice(0, -1), ")"] : "", " ", b.what + (b.count > 1 ? b.ended ? ` (it ended ${b.count} captures)` : ` (${b.count} times)` : ""), ": ", b.why, b.hint ? ". " + b.hint : ""]), 8));
  const eager = run.lines;
  if (eager.length && compiled.length) add("One at a time", "outside compiled functions, operators ran from ", some(ranges(eager.map(r => r.where)), FEW));
  const again = recompiles();
  if (captured && !again.length) add("Compiled again", "never: each call fitted what its first one compiled.");
  else if (again.length) add("Compiled again", list(grouped(again).map(([r, others]) => [r.what, " because ", h("b", {}, r.why), readAt(r), placeButton(r.where), others.length ? [". By that change also: ", others.map((o, i) => [i ? ", " : "", o.what, " ", placeButton(o.where)])] : ""]), 8));
  if (run.costs.length) {
    const k = run.costs[0], all = kernelSums(), cold = !k.ns, graphs = new Map(run.captures.flatMap(c => c.graphs.map(g => [g.label, [c, g]])));
    const parts = k.parts.map(p => costRow(k, p, graphs.get(p.graph)));
    const row = {...parts[0], keys: [...new Set(parts.flatMap(p => p.keys))], calls: k.calls, ns: k.ns, moved: k.moved_bytes, operations: k.operations, fastest: k.fastest_ns};
    const took = cold ? `${ns(k.first_ns)} in ${count(k.first_calls, "call")}, which made their plan` : `${ns(k.ns)} in ${count(k.calls, "call")}${k.parts.length > 1 ? ` (${k.parts.length} rows below)` : ""}, ${Math.round(100 * k.ns / all.ns)} % of what all kernels and library routines took (${ns(all.ns)} in ${count(all.calls, "call")}${k.first_calls ? `); not counted: its ${count(k.first_calls, "first call")}, which made plans (${ns(k.first_ns)})` : ")"}`;
    const limit = limitShare(row);
    add("Longest kernel", sourceButton(row), `, ${k.how === "generated" ? "a generated kernel" : k.how === "eager kernel" ? "an eager kernel" : "a library routine"}${byOneDnn(row) ? ", its code by oneDNN" : ""}: ${took}. `, limit, limit ? ". " : "", limit ? busy(row) : "",
      k.lines.length ? ["From ", some(ranges(k.lines), 6), ". "] : "", longestCompiled(k, all), codeOfRow(row, true) ? "" : run.vendor === "Rushlight" ? "Its machine code could not be read here. " : `Its machine code is ${run.vendor}'s, and is not observed. `, h("a", {href: "#time"}, "all kernels"));
  }
  const compiledFor = artifacts.filter(a => run.device === "cpu" && a.stage === "triton_kernels" && a.graph);
  if (compiledFor.length) add("For a GPU", `${count(compiledFor.length, "kernel")} compiled for ${compiledFor[0].title.split(", for ").pop()} too, and not run: `,
    some(compiledFor.map(a => h("button", {type: "button", class: "mono", onclick: () => besideItsCode(a)}, nameOnGpu(a))), 6));
  const sums = passSums();
  if (sums.has("backward") || sums.size > 1) add("Forward, backward", [...sums].flatMap(([pass, s], i) => [i ? ", " : "", h("button", {type: "button", onclick: () => showPass(pass)}, pass), ` ${ns(s.ns)} in ${count(s.calls, "call")} of kernels` + (s.first_ns > s.ns ? `, and ${firstCalls(s)}` : "")]));
  const {graphs, saved, most, sum} = memory();
  if (most) add("Memory", `at most ${bytes(most.peak_bytes)} at once inside graph `, graphButton(most), ` of ${most.label.split("#")[0]} (${passOf(most)}); `, saved.length ? `saved for backward: ${bytes(Math.max(...saved.map(([, list]) => sum(list, s => !s.parameter))))} of inputs and results${saved.length > 1 ? " at most in a capture" : ""}. ` : "nothing is saved for backward. ", h("a", {href: "#memory"}, "which"));
  const reads = run.facts.waits ? run.facts.waits.map(w => ({...w, waited: true})) : run.facts.reads || [];  // with a GPU, what it waited for
  if (reads.length) add("Python waits", list(reads.map(r => [placeButton(r.line), ` ${r.what}, ${count(r.count, "time")}`, r.waited ? `: the host waited ${ns(r.ns)} for the GPU` : r.host ? ": does not wait, since these stay on the host with a GPU too" : ": reads a number of a tensor; on a GPU the host waits there for all that is queued"]), 8));
  const spent = run.captures.reduce((n, c) => n + c.capture_ms + Object.values(c.stage_ms).reduce((a, b) => a + b, 0), 0);
  const also = run.facts.also || [], phrase = (of, ids) => doc.dimensions.filter(d => ids.includes(d.id)).map(d => d.options.find(o => o.value === of[d.id]).phrase).join(" on ");
  const walls = [run, ...also].map(r => (also.length ? phrase(r, ["mode"]) + " " : "") + ns(r.wall_ns)).join(", ");
  add("Time", `${walls} in all`, spent ? `, ${ns(spent * 1e6)} ${also.length ? "" : "of it "}compiling (most of all: ${stageTitle(compileStages()[0][0])}, ${ns(compileStages()[0][1] * 1e6)})` : "", callTimes().map(t => "; " + t), ". ", h("a", {href: "#time"}, "where it goes"));
  $("ran").textContent = `${also.length ? "of these runs" : "of this run"}: ${[run, ...also].map(r => phrase(r, ["mode", "device"])).join(", ")}`;
  $("short").hidden = false;
  $("shortbody").replaceWith(h("dl", {id: "shortbody"}, rows));
}

// ---- what a GPU did, as CUPTI tells it

function gpuTimes(t) {
  if (t.by === "cupti") return "Times on the GPU are those of each kernel, copy and fill, by CUPTI." + (t.lost ? ` ${t.lost} of its records were lost, so sums are low.` : "");
  return `Times on the GPU are those between events on its stream, around what a call queued. CUPTI was not used: ${t.why || "it was not asked for"}.`;
}
function gpuWork(rows) {
  const shape = r => r.kind === "kernel" ? `${r.grid.join(" x ")}, ${r.block.join(" x ")}` : r.bytes ? bytes(r.bytes / r.count) : "";
  const full = r => r.occupancy ? h("span", {title: "of a multiprocessor's threads, by the limits of threads, registers, shared memory and blocks"}, `${Math.round(100 * r.occupancy)} %`) : "";
  return [table([["what"], ["launched by"], ["times", 1], ["time", 1], ["each", 1], ["grid, block; bytes"], ["registers", 1], ["shared", 1], ["occupancy", 1], ["waves", 1], ["your lines"]],
    rows.map(r => [h("span", {class: "any", title: r.name}, r.name.slice(0, 80)), h("span", {class: "any"}, r.from + (r.graph ? " (in a CUDA graph)" : "")), String(r.count), ns(r.ns), ns(r.ns / r.count), shape(r),
      r.registers ? String(r.registers) + (r.local ? `, ${bytes(r.local)} spilled` : "") : "", r.shared ? bytes(r.shared) : "", full(r), r.waves ? (r.waves < .005 ? "< 0.01" : r.waves.toFixed(2)) : "", r.lines.slice(0, 6).map(l => placeButton(l))]))];
}
function gpuOrder(rows) {
  if (!rows.length) return null;
  return [h("h3", {}, "What the device did, in order"), table([["at", 1], ["what"], ["launched by"], ["line"], ["device, stream"], ["waited in the queue", 1], ["took on the device", 1]],
    rows.map(r => [ns(r.at), h("span", {class: "any", title: r.name}, r.name.slice(0, 80) + (r.bytes ? `, ${bytes(r.bytes)}` : "")), h("span", {class: "any"}, r.from + (r.graph ? " (in a CUDA graph)" : "")), placeButton(r.where || ""), r.place, r.queued === null ? "" : ns(r.queued), ns(r.ns)])),
    data.device_work_left_out ? h("p", {class: "dim"}, `${data.device_work_left_out} in the middle are left out`) : null];
}
