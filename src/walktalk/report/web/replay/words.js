// Events as sentences, from the templates of report/replay/words.py; numbers, times and sizes as a person reads them.
(function (R) {
  "use strict";

  R.sentence = function (c, words, i) {
    const { e } = c, name = e.kinds[e.kind[i]];
    const text = (words[name] || name)
      .replaceAll("node {peer}", c.names ? "{peer}" : "node {peer}")
      .replace(/\[([^|\]]*)\|([^\]]*)\]/g, (_, yes, no) => (fields(yes).every((f) => fact(c, i, f) !== null) ? yes : no))
      .replace(/\{(\w+)\}/g, (_, field) => fact(c, i, field) ?? "?");
    return e.node[i] < 0 || /^[A-Z]/.test(text) ? text[0].toUpperCase() + text.slice(1) : `${R.called(c.names, e.node[i], "Node")} ${text}`;
  };

  // A node's own name, or its number.
  R.called = (names, node, word = "node") => (names ? names[node] : `${word} ${node}`);

  const fields = (text) => [...text.matchAll(/\{(\w+)\}/g)].map((match) => match[1]);

  function fact(c, i, field) {
    const { e } = c;
    const said = e.link[i] >= 0 && e.text[i] < 0 ? e.link[i] : i; // a message says what it is when it is sent
    const text = e.text[said] >= 0 ? e.texts[e.text[said]] : null;
    const parcel = text === null ? null : /^(.*)\|(\d+)$/.exec(text);
    switch (field) {
      case "peer": return e.peer[i] >= 0 ? (c.names ? c.names[e.peer[i]] : String(e.peer[i])) : null;
      case "walk": return e.walk[i] > 0 ? String(e.walk[i]) : null;
      case "number": return e.number[i] >= 0 ? String(e.number[i]) : null;
      case "iteration": {
        const k = R.last(c.trained, i, (t) => t.i);
        return k >= 0 ? R.whole(c.trained[k].iteration) : null;
      }
      case "kind": return parcel ? parcel[1] : "message";
      case "size": return parcel ? R.bytes(Number(parcel[2])) : null;
      case "slot":
      case "detail": return parcel ? null : text;
      default: return null;
    }
  }

  R.whole = (value) => Math.round(value).toLocaleString("en-US");

  // A clock whose digits do not jump about.
  R.seconds = function (t, end) {
    if (end < 2) return `${(t * 1000).toFixed(end < 0.1 ? 2 : 0)} ms`;
    if (end < 60) return `${t.toFixed(2)} s`;
    if (end < 20000) return `${t.toLocaleString("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 })} s`;
    return `${(t / 3600).toFixed(2)} h`;
  };

  R.bytes = (value) => window.Walktalk.format.onAxis("bits", value * 8);
})((window.WalktalkReplay = window.WalktalkReplay || {}));
