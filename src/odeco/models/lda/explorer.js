"use strict";
/* The explorer of topics. It reads the JSON in the page, builds everything from text nodes, and fetches nothing. */
(() => {
  const root = document.getElementById("explorer");
  const data = JSON.parse(document.getElementById("explorer-data").textContent);
  const { topics, words, frequencies, holders, likeness } = data;
  const state = { topic: 0, word: -1, weight: data.weight, sort: "share", found: -1 };
  const percent = (value) => (100 * value).toFixed(value < 0.0995 ? 1 : 0) + " %";

  /* ---- elements ---- */

  function make(tag, options = {}, ...children) {
    const drawn = ["svg", "g", "circle", "text", "title"].includes(tag);
    const element = drawn ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(options)) {
      if (name === "text") element.textContent = value;
      else if (name === "hue") element.style.setProperty("--hue", value);
      else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  }

  function bar(name, share, hue) {
    const element = make("span", hue === undefined ? { class: name } : { class: name, hue });
    element.style.width = Math.max(0, Math.min(100, 100 * share)).toFixed(1) + "%";
    return element;
  }

  /* ---- what there is to show ---- */

  /* The words of a topic, most relevant first: weight · log p + (1 − weight) · log(p / frequency). */
  function leading(number, count) {
    const { words: own, weights } = topics[number];
    return own
      .map((word, place) => {
        const logarithm = Math.log(weights[place]);
        const score = logarithm - (1 - state.weight) * Math.log(frequencies[word]);
        return { word, weight: weights[place], score };
      })
      .sort((one, other) => other.score - one.score)
      .slice(0, count);
  }

  const name = (number) => leading(number, 3).map(({ word }) => words[word]).join(", ") || "–";

  function shareOf(number, word) {
    const list = holders[word];
    for (let place = 0; place < list.length; place += 2) if (list[place] === number) return list[place + 1] / 1000;
    return 0;
  }

  function sorted() {
    const order = topics.map((_, number) => number);
    const by = {
      share: (number) => -topics[number].share,
      measure: (number) => -(topics[number].value ?? 0),
      likeness: (number) => -(number === state.topic ? 1000 : likeness[state.topic][number]),
      word: (number) => -shareOf(number, state.word),
    };
    if (state.sort === "name") return order.sort((one, other) => name(one).localeCompare(name(other)));
    const key = by[state.sort === "word" && state.word < 0 ? "share" : state.sort];
    return order.sort((one, other) => key(one) - key(other) || one - other);
  }

  /* ---- the toolbar ---- */

  const search = make("input", {
    type: "search", id: "explorer-search", placeholder: "Search for a word", autocomplete: "off", spellcheck: "false",
    role: "combobox", "aria-expanded": "false", "aria-controls": "explorer-found", "aria-label": "Search for a word",
    oninput: () => { if (!search.value) change({ word: -1 }); suggest(); }, onfocus: () => suggest(), onblur: () => setTimeout(forget, 150), onkeydown: searchKey,
  });
  const found = make("ul", { id: "explorer-found", role: "listbox", hidden: "" });
  const slider = make("input", {
    type: "range", id: "explorer-weight", min: 0, max: 1, step: 0.1, value: state.weight,
    oninput: () => change({ weight: Number(slider.value) }),
  });
  const sorting = make("select", { id: "explorer-sort", onchange: () => change({ sort: sorting.value }) });
  const choices = [["share", "share"], ["likeness", "likeness to the chosen topic"], ["name", "first word"]];
  if (data.measure) choices.splice(1, 0, ["measure", data.measure]);
  choices.push(["word", "share of the searched word"]);
  for (const [value, text] of choices) sorting.append(make("option", { value, text }));

  function matches() {
    const wanted = search.value.trim().toLowerCase();
    if (!wanted) return [];
    const begin = [], inside = [];
    words.forEach((word, number) => {
      const place = word.toLowerCase().indexOf(wanted);
      if (place >= 0) (place === 0 ? begin : inside).push(number);
    });
    const common = (one, other) =>
      (words[other].toLowerCase() === wanted) - (words[one].toLowerCase() === wanted) || frequencies[other] - frequencies[one];
    return [...begin.sort(common), ...inside.sort(common)].slice(0, 8);
  }

  function suggest() {
    const list = matches();
    state.found = list.length ? 0 : -1;
    found.replaceChildren(
      ...list.map((word, place) =>
        make("li", {
          role: "option", id: `explorer-found-${place}`, "aria-selected": String(place === state.found), text: words[word],
          onmousedown: (event) => { event.preventDefault(); choose(word); },
        }),
      ),
    );
    if (!list.length && search.value.trim())
      found.append(make("li", { class: "none", text: "None of the leading or frequent words" }));
    found.hidden = !found.childElementCount;
    search.setAttribute("aria-expanded", String(!found.hidden));
    mark();
  }

  function mark() {
    [...found.children].forEach((line, place) => line.setAttribute("aria-selected", String(place === state.found)));
    if (state.found >= 0) search.setAttribute("aria-activedescendant", `explorer-found-${state.found}`);
    else search.removeAttribute("aria-activedescendant");
  }

  function forget() {
    found.hidden = true;
    search.setAttribute("aria-expanded", "false");
  }

  function searchKey(event) {
    const list = matches();
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (list.length) state.found = (state.found + (event.key === "ArrowDown" ? 1 : list.length - 1)) % list.length;
      mark();
    } else if (event.key === "Enter" && list.length) choose(list[Math.max(0, state.found)]);
    else if (event.key === "Escape") { search.value = ""; forget(); change({ word: -1 }); }
  }

  /* A word that is chosen leads to the topic that has most of it. */
  function choose(word) {
    search.value = words[word];
    forget();
    change({ word, topic: holders[word].length ? holders[word][0] : state.topic });
  }

  /* ---- the map ---- */

  const WIDTH = 1000, unit = WIDTH / data.size[0], HEIGHT = data.size[1] * unit;
  const map = make("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT.toFixed(0)}`, role: "group", "aria-label": "Map of topics" });
  const spots = topics.map((topic, number) => {
    const [x, y, r] = [topic.x * unit, HEIGHT - topic.y * unit, Math.max(topic.r * unit, 6)];
    const inner = make("circle", { class: "part", cx: x, cy: y, r: 0 });
    const hint = make("title");
    const label = make("text", { class: "label", x, y: y + r });
    const digits = make("text", { class: "number", x, y, text: number });
    const spot = make(
      "g",
      {
        class: topic.clear ? "spot" : "spot unsure", tabindex: 0, role: "button", hue: topic.hue,
        onclick: () => change({ topic: number }),
        onkeydown: (event) => {
          if (event.key === "Enter" || event.key === " ") { event.preventDefault(); change({ topic: number }); }
          const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
          if (step) {
            event.preventDefault();
            const next = (number + step + topics.length) % topics.length;
            change({ topic: next });
            spots[next].spot.focus();
          }
        },
      },
      hint,
      make("circle", { class: "whole", cx: x, cy: y, r }),
      inner,
      digits,
      label,
    );
    return { spot, inner, hint, label, number: digits, x, y, r };
  });
  map.append(...spots.map(({ spot }) => spot));

  /* Letters keep their size on the screen, whatever the size of the map; labels that would overlap give way. */
  function fitLabels() {
    const shown = map.getBoundingClientRect().width;
    if (!shown) return;
    const letter = (12 * WIDTH) / shown, taken = [];
    map.style.setProperty("--letter", letter.toFixed(2) + "px");
    const order = topics.map((_, number) => number).sort((one, other) => (other === state.topic) - (one === state.topic) || topics[other].share - topics[one].share);
    for (const { number, x, y, r } of spots) {
      const size = Math.min(letter, 1.25 * r), half = Math.max(0.7 * r, 0.5 * size);
      number.style.fontSize = size.toFixed(2) + "px";
      number.style.display = size > 0.55 * letter ? "" : "none";
      taken.push([x - half, y - half, x + half, y + half]);
    }
    for (const number of order) {
      const { label, x, y, r } = spots[number];
      const half = 0.29 * letter * label.textContent.length, top = y + r + 0.15 * letter, box = [x - half, top, x + half, top + letter];
      const free = taken.every((other, place) => place === number || box[2] < other[0] || box[0] > other[2] || box[3] < other[1] || box[1] > other[3]);
      const inside = box[0] > -0.02 * WIDTH && box[2] < 1.02 * WIDTH;
      label.style.display = number === state.topic || (free && inside) ? "" : "none";
      if (free && inside) taken.push(box);
    }
  }

  function drawMap() {
    map.classList.toggle("searching", state.word >= 0);
    topics.forEach((topic, number) => {
      const { spot, inner, hint, label, r } = spots[number], first = leading(number, 1)[0];
      const part = state.word < 0 ? 0 : shareOf(number, state.word);
      spot.classList.toggle("chosen", number === state.topic);
      spot.classList.toggle("without", state.word >= 0 && part === 0);
      spot.setAttribute("aria-pressed", String(number === state.topic));
      spot.setAttribute("aria-label", `Topic ${number}: ${name(number)}`);
      inner.setAttribute("r", (r * Math.sqrt(part)).toFixed(1));
      hint.textContent = `Topic ${number} · ${percent(topic.share)} · ${name(number)}`;
      label.textContent = first ? shortened(words[first.word], 16) : "–";
    });
    fitLabels();
  }

  const shortened = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);

  /* ---- the chosen topic ---- */

  const head = make("div", { class: "head", "aria-live": "polite" });
  const lines = make("ol", { class: "lines" });
  const key = make("p", { class: "key" });

  function drawTopic() {
    const topic = topics[state.topic], list = leading(state.topic, data.shown);
    const step = (by) => make("button", {
      type: "button", class: "step", text: by < 0 ? "‹" : "›", "aria-label": by < 0 ? "Previous topic" : "Next topic",
      onclick: () => change({ topic: (state.topic + by + topics.length) % topics.length }),
    });
    head.replaceChildren(
      make("span", { class: "badge", hue: topic.hue, text: state.topic }),
      make("div", {}, make("h3", { text: name(state.topic) }),
        make("p", { text: [`${percent(topic.share)} of all words`, topic.standing].filter(Boolean).join(" · ") })),
      make("div", { class: "steps" }, step(-1), step(1)),
    );
    const widest = Math.max(...list.map(({ word }) => frequencies[word]), 1e-12);
    lines.replaceChildren(
      ...list.map(({ word, weight }) => {
        const own = Math.min(1, (weight * topic.share) / frequencies[word]);
        const line = make(
          "button",
          {
            type: "button", class: word === state.word ? "line chosen" : "line", hue: topic.hue,
            title: `${words[word]}: ${percent(weight)} of this topic; ${percent(own)} of its uses are here`,
            onclick: () => (word === state.word ? clear() : pick(word)),
          },
          make("span", { class: "word", text: words[word] }),
          make("span", { class: "track" }, bar("all", frequencies[word] / widest), bar("own", (own * frequencies[word]) / widest)),
          make("span", { class: "value", text: percent(weight) }),
        );
        return make("li", {}, line);
      }),
    );
    if (!list.length) lines.append(make("li", { class: "none", text: "No word is clear of its noise." }));
    lines.classList.toggle("unsure", !topic.clear);
  }

  function pick(word) {
    search.value = words[word];
    change({ word });
  }

  function clear() {
    search.value = "";
    change({ word: -1 });
  }

  /* ---- the searched word ---- */

  const banner = make("div", { class: "banner", "aria-live": "polite", hidden: "" });

  function drawWord() {
    banner.hidden = state.word < 0;
    if (state.word < 0) return;
    const list = holders[state.word], parts = [];
    for (let place = 0; place < Math.min(list.length, 10); place += 2) {
      const number = list[place];
      parts.push(make("button", {
        type: "button", class: "chip", hue: topics[number].hue, text: `${number} · ${percent(list[place + 1] / 1000)}`,
        title: name(number), onclick: () => change({ topic: number }),
      }));
    }
    banner.replaceChildren(
      make("strong", { text: words[state.word] }),
      make("span", { text: `${(100 * frequencies[state.word]).toPrecision(2)} % of all words` + (parts.length ? ", in topics" : "") }),
      ...parts,
      make("button", { type: "button", class: "close", text: "×", "aria-label": "Clear the search", onclick: clear }),
    );
  }

  /* ---- all topics ---- */

  const list = make("ol", { class: "topics" });

  function drawList() {
    const largest = Math.max(...topics.map(({ share }) => share), 1e-12);
    list.replaceChildren(
      ...sorted().map((number) => {
        const topic = topics[number], part = state.word < 0 ? topic.share / largest : shareOf(number, state.word);
        const value = state.word < 0 ? percent(topic.share) : part ? percent(part) : "–";
        return make("li", {}, make(
          "button",
          {
            type: "button", class: "row" + (number === state.topic ? " chosen" : "") + (topic.clear ? "" : " unsure"), hue: topic.hue,
            "aria-pressed": String(number === state.topic), title: topic.standing, onclick: () => change({ topic: number }),
          },
          make("span", { class: "badge", hue: topic.hue, text: number }),
          make("span", { class: "name", text: leading(number, 5).map(({ word }) => words[word]).join(", ") || "–" }),
          make("span", { class: "value", text: value }),
          make("span", { class: "track" }, bar(state.word < 0 ? "own" : "own searched", part)),
        ));
      }),
    );
  }

  /* ---- documents ---- */

  const shelf = make("div", { class: "documents" });
  const withDocuments = topics.some(({ documents }) => documents.length);

  /* The text of a document, with the words that lead the topic marked. */
  function marked(text, telling) {
    const pieces = make("p");
    let last = 0;
    for (const match of text.matchAll(/[\p{L}\p{N}_]+/gu)) {
      const word = match[0].toLowerCase(), searched = state.word >= 0 && word === words[state.word].toLowerCase();
      if (!searched && !telling.has(word)) continue;
      pieces.append(text.slice(last, match.index), make("mark", { class: searched ? "searched" : "telling", text: match[0] }));
      last = match.index + match[0].length;
    }
    pieces.append(text.slice(last));
    return pieces;
  }

  function drawDocuments() {
    const topic = topics[state.topic], telling = new Set(leading(state.topic, data.shown).map(({ word }) => words[word].toLowerCase()));
    shelf.replaceChildren(
      ...topic.documents.map(([source, text, share]) => {
        const quote = make("blockquote", { hue: topic.hue }, marked(text, telling), make("cite", { text: `${source} · ${percent(share)} topic ${state.topic}` }));
        return quote;
      }),
    );
    if (!topic.documents.length) shelf.append(make("p", { class: "none", text: "No document is shown for this topic." }));
  }

  /* ---- all together ---- */

  function change(news) {
    Object.assign(state, news);
    draw();
    history.replaceState(null, "", `#topic-${state.topic}`);
  }

  function draw() {
    slider.setAttribute("aria-valuetext", `${state.weight}: 0 is words of this topic alone, 1 is frequent words`);
    const bars = "Bars: all uses of a word, and those in this topic.";
    key.textContent = data.measure === "trust" ? bars + " Words that do not stand clear of their noise are left out." : bars;
    drawWord();
    drawTopic();
    drawMap();
    drawList();
    if (withDocuments) drawDocuments();
  }

  const given = /^#topic-(\d+)$/.exec(location.hash);
  if (given && Number(given[1]) < topics.length) state.topic = Number(given[1]);
  root.append(
    make("div", { class: "tools" },
      make("div", { class: "search" }, search, found),
      make("label", { class: "slider", for: "explorer-weight" }, make("span", { text: "distinctive words" }), slider, make("span", { text: "frequent words" })),
      make("label", { class: "sort", for: "explorer-sort" }, make("span", { text: "topics by" }), sorting),
    ),
    banner,
    make("div", { class: withDocuments ? "panels" : "panels without" },
      make("div", { class: "panel map" }, map, make("p", { class: "key", text: "Topics that use the same words are near each other. The area of a circle is the topic’s share." })),
      make("div", { class: "panel words" }, head, lines, key),
      make("div", { class: "panel all" }, make("h3", { text: topics.length === 1 ? "The topic" : `All ${topics.length} topics` }), list),
      ...(withDocuments ? [make("div", { class: "panel shelf" }, make("h3", { text: "Most typical documents" }), shelf)] : []),
    ),
  );
  root.hidden = false;
  document.documentElement.classList.add("live");
  draw();
  new ResizeObserver(fitLabels).observe(map);
})();
