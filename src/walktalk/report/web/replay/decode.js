// The events of a run, from the bytes that report/replay/events.py wrote: one typed array a column, -1 for "nothing".
(function (R) {
  "use strict";

  const SAME = 0x80; // same time and node as the event before

  R.decode = function (coded) {
    const data = fromBase64(coded.bytes);
    const n = coded.count;
    const column = () => new Int32Array(n).fill(-1);
    const e = {
      n, kinds: coded.kinds.map((k) => k.name), texts: coded.texts,
      kind: new Uint8Array(n), time: new Float64Array(n), node: column(), peer: column(), walk: column(),
      number: column(), link: column(), text: column(),
    };
    const forms = coded.kinds.map((k) => k.form);
    let at = 0;
    const take = () => {
      let value = 0, scale = 1, byte;
      do {
        byte = data[at++];
        value += (byte & 0x7f) * scale; // not <<: a number may have more than 32 bits
        scale *= 128;
      } while (byte >= 0x80);
      return value;
    };
    let now = 0, here = -1;
    for (let i = 0; i < n; i++) {
      const first = data[at++];
      if (!(first & SAME)) {
        now += take();
        here = take() - 1;
      }
      const kind = (e.kind[i] = first & ~SAME);
      e.time[i] = now * coded.tick;
      e.node[i] = here;
      for (const field of forms[kind]) {
        const value = take();
        if (field !== "back") e[field][i] = value - 1;
        else if (value) {
          const begun = i - value;
          e.link[i] = begun;
          e.walk[i] = e.walk[begun];
          if (e.peer[begun] >= 0) e.peer[i] = e.node[begun]; // the other end of a message; a training has none
        } else {
          e.peer[i] = take() - 1;
          e.walk[i] = take() - 1;
        }
      }
    }
    return e;
  };

  function fromBase64(text) {
    const raw = atob(text);
    const bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
    return bytes;
  }
})((window.WalktalkReplay = window.WalktalkReplay || {}));
