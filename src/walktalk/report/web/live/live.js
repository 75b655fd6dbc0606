/* A page of something that still runs: says how far it is, and takes new results in place of the old as they come. */
(() => {
  const token = new URLSearchParams(location.search).get("token");
  const name = nameOfThisPage();
  const at = (path) => `${path}?page=${name}${token ? `&token=${encodeURIComponent(token)}` : ""}`;
  const part = (name, ...children) => {
    const element = document.createElement("div");
    element.className = name;
    element.append(...children);
    return element;
  };
  const fill = document.createElement("span"), words = document.createElement("b"), losses = document.createElement("span");
  losses.className = "live-losses";
  const bar = part("live-bar", fill);
  bar.setAttribute("role", "progressbar");
  bar.setAttribute("aria-label", "How far it is");
  const box = part("live", bar, part("live-words", words, losses));
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", "How far it is");
  document.body.prepend(box);
  let version = 0;
  let over = false;
  let lastTold = {};
  let asking = Promise.resolve();
  let held = false;

  /* By which the server knows that a page that was loaded again is the same one, and waits for it in the end. */
  function nameOfThisPage() {
    const fresh = Math.random().toString(36).slice(2);
    try {
      return (sessionStorage.walktalkPage ||= fresh);
    } catch {
      return fresh; // a browser that keeps nothing
    }
  }

  function tell(progress) {
    if (!Object.keys(progress).length) return;
    lastTold = progress;
    const share = Math.round(100 * progress.share);
    fill.style.width = `${share}%`;
    bar.setAttribute("aria-valuenow", String(share));
    words.textContent = progress.words;
    losses.textContent = Object.entries(progress.losses).map(([name, loss]) => `${name}: ${loss}`).join(" · ");
    document.title = `${share < 100 ? `${share} % · ` : ""}${progress.name} · walktalk`;
  }

  /* One question after the other: the answer to an earlier one may come late, and would put back an older state. */
  function take() {
    asking = asking.then(takeNewest);
    return asking;
  }

  async function takeNewest() {
    if (held) return;
    const ask = fetch(at("page.json")).then((found) => found.json());
    const answer = await ask.catch(() => ({})); // the process has ended meanwhile: what is shown stays
    if (!answer.parts || answer.version === version) return;
    version = answer.version;
    window.WalktalkPage.update(answer.parts);
  }

  const source = new EventSource(at("events"));
  source.addEventListener("progress", (event) => {
    box.dataset.state = "";
    tell(JSON.parse(event.data));
  });
  source.addEventListener("page", () => {
    if (window.WalktalkPage) {
      take();
    } else { // this is the page that waits; the one that it becomes hears of the end itself
      source.close();
      location.reload();
    }
  });
  source.addEventListener("end", async () => {
    over = true;
    source.close();
    await take();
    box.dataset.state = "done";
  });
  source.addEventListener("error", () => {
    if (over) return;
    box.dataset.state = "lost";
    words.textContent = `${lastTold.words || ""} · not connected: the process that served this page does not answer`;
  });
  const hold = (on) => {
    held = on;
    if (!on) take();
  };
  window.WalktalkLive = { get version() { return version; }, get over() { return over; }, hold };
})();
