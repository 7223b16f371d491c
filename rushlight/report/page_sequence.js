// Host and device in sequence: what the host queued, when the device did it, and where Python waited.

function drawSequence() {
  const events = (data.device_events || []), waits = run && run.facts.waits || [];
  if (!events.length && !waits.length) {
    $("sequence").hidden = !!run;  // on a CPU the timeline is the sequence
    put("sequencebody", none(run ? "Nothing ran on a GPU in this run. On a CPU there is no queue: each call returns when its work is done, so the timeline above is the sequence." : "Give a script that uses a GPU: launches, copies and waits stand here in order."));
    return;
  }
  put("sequencebody", waits.length ? [h("h3", {}, "Where the host waited for the device"), table([["line"], ["asked by"], ["times", 1], ["waited", 1]], waits.map(w => [placeButton(w.line), w.what, String(w.count), ns(w.ns)]))] : null,
    oneCall(events, data.device_work || []),
    events.length ? [h("h3", {}, "What the host launched, in order"), table([["at", 1], ["host does"], ["what"], ["line"], ["took on the host", 1]], events.map(e => [ns(e.at), e.kind, e.name, placeButton(e.where || ""), ns(e.ns)]))] : null,
    data.device_left_out ? h("p", {class: "dim"}, `${data.device_left_out} launches in the middle are left out`) : null,
    gpuOrder(data.device_work || []), run.facts.gpu_times ? h("p", {class: "dim"}, gpuTimes(run.facts.gpu_times)) : null);
}

// One call of compiled code as a picture: host above, device below, a line from each launch to the
// start of what it launched. Without CUPTI nobody knows when the device did it, so there is none.
function oneCall(events, work) {
  const calls = [...new Set(events.map(e => e.call).filter(Boolean))];
  if (!calls.length || !work.length) return null;
  const host = h("div", {class: "graph"}), told = h("p", {class: "dim"});
  const draw = name => { const shown = sequenceOf(events, work, name); host.replaceChildren(pictureOf(shown)); told.textContent = sequenceText(shown); };
  const usual = calls[calls.length - 1];  // the last one found all that the others had made
  const select = h("select", {"aria-label": "which call", onchange: e => draw(e.target.value)}, calls.map(c => h("option", {value: c, selected: c === usual}, c)));
  draw(usual);
  return [h("h3", {}, "One call, over time"), h("p", {}, select, " ", [["launch", "launch"], ["waits", "Python waits"], ["kernel", "kernel"], ["copy", "copy or fill"]].map(([kind, text]) => h("span", {class: "legend"}, h("span", {class: "patch seq " + kind}), text))), host, told];
}
// {host, device}: the rows of a call, `from` and `to` its ends; the device's with `launched`.
function sequenceOf(events, work, name) {
  const host = events.filter(e => e.call === name), from = Math.min(...host.map(e => e.at)), end = Math.max(...host.map(e => e.at + e.ns));
  const device = work.map(w => ({...w, launched: w.at - (w.queued || 0)})).filter(w => w.launched >= from && w.launched <= end);
  return {host, device, from, to: Math.max(end, ...device.map(w => w.at + w.ns))};
}
function sequenceText({host, device, from, to}) {
  const sum = list => list.reduce((n, e) => n + e.ns, 0), waits = host.filter(e => e.kind === "reads");
  return `${ns(to - from)} from the first launch to the last end: the host launched ${count(host.length - waits.length, "time")}, which took it ${ns(sum(host) - sum(waits))}` + (waits.length ? `, and waited ${ns(sum(waits))}` : "") +
    `; the device was busy for ${ns(sum(device))} with ${device.length.toLocaleString("en")} kernels, copies and fills` + (device.length ? `, which waited in the queue for ${ns(Math.max(...device.map(w => w.queued || 0)))} at most.` : ".");
}
function pictureOf({host, device, from, to}) {
  const places = [...new Set(device.map(w => w.place))], left = 110, wide = 1040, row = 30, x = t => left + (t - from) / Math.max(1, to - from) * wide;
  const y = place => 80 + row * places.indexOf(place), high = 80 + row * Math.max(1, places.length) + 26;
  const bar = (at, took, top, kind, text, where) => {
    const place = placeOf(where);
    return h("rect", {class: "seq " + kind, x: x(at), y: top, width: Math.max(1.5, x(at + took) - x(at)), height: 20, onclick: () => { if (place) showLines(place[0], place[1], place[1]); }}, h("title", {}, text));
  };
  const svg = h("svg", {width: left + wide + 20, height: high, viewBox: `0 0 ${left + wide + 20} ${high}`, role: "img", "aria-label": "host and device over time"});
  const said = (text, at, top, more) => h("text", {class: "small", x: at, y: top, ...more}, text);
  svg.append(said("host", 8, 34), ...places.map(p => said(p, 8, y(p) + 14)), h("line", {class: "edge", x1: left, x2: left + wide, y1: high - 18, y2: high - 18}));
  for (const i of [0, .25, .5, .75, 1]) svg.append(said(ns(i * (to - from)), left + i * wide, high - 4, {"text-anchor": i === 1 ? "end" : i ? "middle" : "start"}));
  for (const w of device) svg.append(h("line", {class: "queued", x1: x(w.launched), x2: x(w.at), y1: 40, y2: y(w.place)}));
  for (const e of host) svg.append(bar(e.at, e.ns, 20, e.kind === "reads" ? "waits" : "launch", `${e.kind === "reads" ? "waits for" : "launches"} ${e.name}: ${ns(e.ns)} on the host, from ${ns(e.at - from)}`, e.where));
  for (const w of device) svg.append(bar(w.at, w.ns, y(w.place), /^(copy|fill)/.test(w.name) ? "copy" : "kernel", `${w.name}: ${ns(w.ns)} on the device, from ${ns(w.at - from)}${w.queued === null ? "" : `, ${ns(w.queued)} in the queue`}`, w.where));
  return svg;
}
