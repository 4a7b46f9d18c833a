// The report page: reads the data in the element `data`, and draws figures, charts and tables of
// it.
//
// The address holds the whole state, so that a link shows the same page:
// #peer=cuBLASLt&type=bf16&group=eights,any. Lists are separated by commas. Keys that are not in
// LISTS or SINGLES are ignored.
//
// `window.report` is for tests. It offers
//   statistics  geometricMean(values), quantile(sorted, part), bootstrapInterval(values, options), summary(ratios)
//   scales      logScale(domain, range), logTicks(domain, scale, gap)
//   format      number, ratio, microseconds, percent, dates
//   state       parse(hash), write(state): the two directions between the address and a state;
//               current(): the state shown; set(hash): shows another one, at once
//   prepare(data), select(model, state)
//               the data as the sections read it, and what passes the filters
//   commandFor(problem, peer)
//               the command that measures a problem again: {text, exact}, or null if its name is not understood
//   view()      what is shown: {peer, problems, pairs, ...}
//   renderMs    how long the last change of the page took
//
// Elements with `data-figure` hold a key figure, and its value in `data-value`: geometric-mean,
// compared, behind, least, and for each library wrong:NAME. Rows of the table of all problems have
// `data-row`, the index of the problem in the data. A section without anything to show is hidden.
'use strict';

window.report = (() => {
  // ---- Statistics --------------------------------------------------

  // A problem counts as behind if its ratio is below this: less may be the spread of the
  // measurement.
  const BEHIND = 0.97;

  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const geometricMean = (values) => Math.exp(mean(values.map(Math.log)));

  /** The quantile of sorted values, interpolated between neighbours. */
  function quantile(sorted, part) {
    const at = part * (sorted.length - 1);
    const below = Math.floor(at);
    const above = Math.min(below + 1, sorted.length - 1);
    return sorted[below] + (sorted[above] - sorted[below]) * (at - below);
  }

  /** Uniform numbers of [0, 1) that a seed determines (mulberry32), so that a report never changes. */
  function random(seed) {
    let state = seed >>> 0;
    return () => {
      state = (state + 0x6d2b79f5) >>> 0;
      let bits = Math.imul(state ^ (state >>> 15), state | 1);
      bits ^= bits + Math.imul(bits ^ (bits >>> 7), bits | 61);
      return ((bits ^ (bits >>> 14)) >>> 0) / 4294967296;
    };
  }

  /** Bounds of the bootstrap interval of the geometric mean. Many values need fewer rounds for the same time. */
  function bootstrapInterval(values, { rounds, level = 0.95, seed = 1 } = {}) {
    const logs = Float64Array.from(values, Math.log);
    const times = rounds ?? Math.max(200, Math.min(1000, Math.floor(1e6 / logs.length)));
    const next = random(seed);
    const means = new Float64Array(times).map(() => {
      let sum = 0;
      for (let draw = 0; draw < logs.length; draw++) sum += logs[Math.floor(next() * logs.length)];
      return sum / logs.length;
    });
    means.sort();
    const tail = (1 - level) / 2;
    return [Math.exp(quantile(means, tail)), Math.exp(quantile(means, 1 - tail))];
  }

  /** What the tables say of a set of ratios. */
  function summary(ratios) {
    const sorted = Float64Array.from(ratios).sort();
    const [p5, p25, p50, p75, p95] = [0.05, 0.25, 0.5, 0.75, 0.95].map((part) => quantile(sorted, part));
    const behind = ratios.filter((ratio) => ratio < BEHIND).length / ratios.length;
    return { count: ratios.length, mean: geometricMean(ratios), p5, p25, p50, p75, p95, behind, least: sorted[0] };
  }

  /** Items by the value of a key, in order of first appearance. */
  function groupBy(items, key) {
    const groups = new Map();
    for (const item of items) {
      const value = key(item);
      if (value === undefined) continue;
      if (!groups.has(value)) groups.set(value, []);
      groups.get(value).push(item);
    }
    return groups;
  }

  // ---- Numbers as text ---------------------------------------------

  const DASH = '–';
  const NARROW = '\u202f';
  // A formatter takes much longer to make than to use.
  const formatters = new Map();
  function format(value, key, options) {
    if (!formatters.has(key)) formatters.set(key, new Intl.NumberFormat('en-US', options));
    return formatters.get(key).format(value);
  }
  const number = (value, decimals = 0) =>
    format(value, decimals, { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
  const significant = (value, digits) =>
    format(value, `s${digits}`, { minimumSignificantDigits: digits, maximumSignificantDigits: digits });
  const ratioText = (value) => (value < 10 ? number(value, 3) : significant(value, 4));
  const microseconds = (value) => (value >= 1000 ? number(value) : significant(value, 4));
  const throughputText = (value) => (value >= 100 ? number(value) : significant(value, 3));
  const RAISED = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
  /** "1.26·10⁻⁴" */
  function scientific(value) {
    if (value === 0) return '0';
    const [digits, exponent] = value.toExponential(2).split('e');
    return `${digits}·10${exponent.replace(/\d/g, (digit) => RAISED[digit]).replace('+', '').replace('-', '⁻')}`;
  }
  const percent = (part) => `${number(100 * part, part < 0.0995 ? 1 : 0)}${NARROW}%`;
  const spreadText = ({ low, high }) => `${ratioText(low)} to ${ratioText(high)}`;
  const counted = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;
  const listed = (words) =>
    words.length < 2 ? words.join('') : `${words.slice(0, -1).join(', ')} and ${words[words.length - 1]}`;

  const MONTHS = ('January February March April May June July August September October November December').split(' ');

  /** The range of days of ISO dates: "21 to 28 November 2026". */
  function dates(values) {
    const days = values.map((value) => /^(\d{4})-(\d\d)-(\d\d)/.exec(value)).filter(Boolean);
    if (days.length === 0) return '';
    const sorted = days.map((day) => day.slice(0, 4)).sort((a, b) => (a[0] < b[0] ? -1 : 1));
    const words = ([, year, month, day]) => [String(Number(day)), MONTHS[Number(month) - 1] ?? month, year];
    const first = words(sorted[0]);
    const last = words(sorted[sorted.length - 1]);
    if (first.join() === last.join()) return last.join(' ');
    while (first.length > 1 && first[first.length - 1] === last[first.length - 1]) first.pop();
    return `${first.join(' ')} to ${last.join(' ')}`;
  }

  // ---- Scales ------------------------------------------------------

  /** A logarithmic scale from a domain to pixels. */
  function logScale([low, high], [from, to]) {
    const start = Math.log(low);
    const factor = (to - from) / (Math.log(high) - start || 1);
    return (value) => from + (Math.log(value) - start) * factor;
  }

  // Leading digits of ticks, the most welcome ones first.
  const TICKS = [[1], [2, 5], [1.5, 3, 7], [1.2, 4, 8], [1.1, 1.3, 6, 9], [1.7, 2.5], [1.05, 9.5], [1.02, 9.8]];

  /** Ticks of a logarithmic axis that keep a gap of so many pixels. */
  function logTicks([low, high], scale, gap) {
    const ticks = [];
    for (const digits of TICKS) {
      for (let decade = Math.floor(Math.log10(low)); decade <= Math.log10(high); decade++) {
        for (const digit of digits) {
          const value = Number(`${digit}e${decade}`);
          const fits = value >= low * 0.9999 && value <= high * 1.0001;
          if (fits && ticks.every((tick) => Math.abs(scale(tick) - scale(value)) >= gap)) ticks.push(value);
        }
      }
    }
    return ticks.sort((a, b) => a - b);
  }

  const tickText = (value) => format(value, 'tick', { maximumSignificantDigits: 6 });

  /** Smallest and largest value, with a margin by which both are extended. */
  function extent(values, margin = 1) {
    let [low, high] = [Infinity, -Infinity];
    for (const value of values) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
    return [low / margin, high * margin];
  }

  // ---- Data --------------------------------------------------------

  const OURS = 'persistent-gemm';
  const isOurs = (who) => who === OURS || /^pgemm\b/.test(who);
  // `cuBLASLt best` and `cuBLASLt` are picks of one library, whose faults carry the library's name.
  const libraryOf = (peer) => peer.replace(/ best$/, '');
  const TYPES = ['bf16', 'f16', 'tf32', 'e4m3', 'e5m2', 's8', 'u8', 'f64', 'f32'];
  const REGIMES = ['launch', 'memory', 'compute'];

  const PROBLEM = new RegExp(
    '^(?<a>[^\\s*>-]+)(?:\\*(?<b>[^\\s>-]+))?(?:->(?<d>\\S+))?(?: (?<modes>.+?))? (?<majors>[km][kn])(?<dMajor>m?) ' +
      '(?<size>\\d+x\\d+x\\d+(?:\\*\\d+)?)(?<rest> .*)?$',
  );
  const PRECISIONS = ['fast', 'f16', 'tf32x3', 'f16x3', 'bf16x6', 'bf16x9'];
  const OUTPUTS = new Map([['tf32', 'f32'], ['e4m3', 'bf16'], ['e5m2', 'bf16'], ['s8', 's32'], ['u8', 's32']]);
  const PEER_OPTIONS = new Map([['cuBLASLt', 'cublaslt'], ['cuBLASLt best', 'cublaslt-best'], ['torch', 'torch']]);

  /** A word as a shell reads it. */
  const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replace(/'/g, "'\\''")}'`);

  /** The command that measures a problem again beside a peer. It is not exact if no option gives all of the problem. */
  function commandFor(name, peer) {
    const found = PROBLEM.exec(name)?.groups;
    if (!found) return null;
    const { a, b = a, d = a, modes = '', majors, dMajor, size, rest = '' } = found;
    const atlas = peer === 'torch';
    const words = ['pgemm', atlas ? 'atlas' : 'bench'];
    const option = (key, value) => words.push(`--${key}`, quoted(value));
    option('problem', size);
    option('dtype', a);
    if (b !== a) option('b-dtype', b);
    if (b !== a || d !== (OUTPUTS.get(a) ?? a)) option('output-dtype', d);
    const epilogue = modes.split(' ').filter((mode) => mode && !PRECISIONS.includes(mode));
    for (const mode of modes.split(' ')) if (PRECISIONS.includes(mode)) option('precision', mode);
    if (atlas) {
      option('majors', majors);
    } else {
      option('a-major', majors[0]);
      option('b-major', majors[1]);
      if (dMajor) option('d-major', dMajor);
      if (epilogue.length) option('epilogue', epilogue.join(' '));
    }
    let exact = !(atlas && (dMajor || epilogue.length));
    for (const word of rest.split(' ').filter(Boolean)) {
      const [key, value] = word.split('=');
      if (!atlas && key.startsWith('batch-stride-')) option(key, value);
      else exact = false;
    }
    if (PEER_OPTIONS.has(peer)) option('against', PEER_OPTIONS.get(peer));
    return { text: words.join(' '), exact };
  }

  const positive = (value) => (typeof value === 'number' && value > 0 && Number.isFinite(value) ? value : undefined);
  const array = (value) => (Array.isArray(value) ? value : []);

  /** Smallest, median and largest of the rounds, if there is a median. */
  function range(values) {
    const [low, ratio, high] = array(values).map(positive);
    return ratio && { low: low ?? ratio, ratio, high: high ?? ratio };
  }

  /** The data as the sections read it: derived figures are computed, and times of zero are left out. */
  function prepare(data) {
    const runs = array(data.runs);
    const memory = positive(data.ceilings?.memory?.gb_per_s);
    const ceilings = new Map();
    for (const [type, { tflops, measured }] of Object.entries(data.ceilings?.types ?? {})) {
      if (positive(tflops)) ceilings.set(type, { tflops, measured });
    }
    // Sections other than that of problems have only names, and the filters know types, majors and
    // runs.
    const named = (item) => {
      const parts = PROBLEM.exec(item.problem)?.groups;
      const run = runs[item.run]?.name;
      return { ...item, run, type: item.type ?? parts?.a, majors: parts?.majors, words: String(item.problem).toLowerCase() };
    };

    const fields = array(data.problems?.fields);
    const objects = array(data.problems?.rows).map((row) => Object.fromEntries(fields.map((field, index) => [field, row[index]])));
    const problems = objects.map((given, index) => {
      const run = runs[given.run]?.name;
      const us = positive(given.us);
      const operations = positive(given.operations) ?? positive(2 * given.m * given.n * given.k * (given.batch ?? 1));
      const bytes = positive(given.bytes);
      const intensity = operations && bytes && operations / bytes;
      const peak = ceilings.get(given.type)?.tflops;
      const ceiling = peak && memory && intensity ? Math.min(peak, (intensity * memory) / 1000) : undefined;
      const tflops = us && operations && operations / us / 1e6;
      const joules = positive(given.joules);
      const peers = new Map();
      for (const peer of array(given.peers)) {
        const peerUs = positive(peer.us);
        const ratio = range(peer.ratio) ?? (us && peerUs && range([peerUs / us, peerUs / us, peerUs / us]));
        peers.set(peer.name, {
          name: peer.name, us: peerUs, ratio, algorithm: peer.algorithm,
          joules: positive(peer.joules),
          tflops: peerUs && operations && operations / peerUs / 1e6,
        });
      }
      const faults = array(given.faults);
      const algorithms = array(given.peers).map((peer) => peer.algorithm);
      const words = [given.problem, given.kernel, given.label, given.group, ...algorithms].join(' ').toLowerCase();
      return {
        ...given, index, run, us, operations, bytes, intensity, ceiling, tflops, joules, peers, faults, words,
        share: tflops && ceiling && tflops / ceiling,
      };
    });

    const timesCompared = new Map();
    for (const { peers } of problems) {
      for (const name of peers.keys()) timesCompared.set(name, (timesCompared.get(name) ?? 0) + 1);
    }
    const peers = [...timesCompared.keys()].sort((a, b) => timesCompared.get(b) - timesCompared.get(a));
    return {
      made: data.made ?? {}, title: data.title, runs, memory: memory && { gbPerS: memory, ...data.ceilings.memory },
      ceilings, problems, peers,
      streams: array(data.streams).map(named), errors: array(data.errors).map(named),
      comparisons: array(data.comparisons).map(named), tuned: array(data.tuned).map(named),
    };
  }

  // ---- State and filters -------------------------------------------

  const LISTS = ['type', 'group', 'majors', 'regime', 'launch', 'run'];
  const SINGLES = {
    peer: '', search: '', theme: 'auto', by: 'auto', axis: 'near', types: 'auto', show: 'both', cubes: 'no', k: 'all',
    sort: 'ratio', page: '1', row: '',
  };
  const FILTERS = [...LISTS, 'peer', 'search'];

  function parseState(hash) {
    const state = { ...SINGLES };
    for (const list of LISTS) state[list] = [];
    const decode = (text) => {
      try {
        return decodeURIComponent(text);
      } catch {
        return text;
      }
    };
    for (const part of hash.replace(/^#/, '').split('&')) {
      const [, key, value] = /^([^=]*)=(.*)$/s.exec(part) ?? [];
      if (LISTS.includes(key)) state[key] = value.split(',').filter(Boolean).map(decode);
      else if (Object.keys(SINGLES).includes(key)) state[key] = decode(value);
    }
    return state;
  }

  function writeState(state) {
    const parts = LISTS.filter((key) => state[key].length).map(
      (key) => `${key}=${state[key].map(encodeURIComponent).join(',')}`,
    );
    for (const [key, usual] of Object.entries(SINGLES)) {
      if (state[key] !== usual) parts.push(`${key}=${encodeURIComponent(state[key])}`);
    }
    return parts.join('&');
  }

  /** Whether a problem was run against a peer, or against nobody at all. Problems of other peers only are left out. */
  function faces(problem, peer) {
    if (problem.peers.has(peer)) return true;
    const others = [...problem.peers.keys()].map(libraryOf);
    const failed = problem.faults.map((fault) => fault.who).filter((who) => !isOurs(who));
    if (others.length + failed.length === 0) return true;
    const library = libraryOf(peer);
    return failed.includes(library) && !others.includes(library);
  }

  /** What passes the filters, and for each value of a filter how many problems it would show. */
  function select(model, state) {
    const peer = state.peer || model.peers[0];
    const wanted = new Map(LISTS.filter((key) => state[key].length).map((key) => [key, new Set(state[key])]));
    const words = state.search.toLowerCase().split(/\s+/).filter(Boolean);
    const found = (item) => words.every((word) => item.words.includes(word));
    const counts = new Map(LISTS.map((key) => [key, new Map()]));
    const problems = [];
    for (const problem of model.problems) {
      if (!found(problem) || (peer && !faces(problem, peer))) continue;
      const failed = [...wanted.keys()].filter((key) => !wanted.get(key).has(problem[key]));
      if (failed.length === 0) problems.push(problem);
      if (failed.length > 1) continue;
      for (const key of failed.length ? failed : LISTS) {
        const values = counts.get(key);
        values.set(problem[key], (values.get(problem[key]) ?? 0) + 1);
      }
    }
    const pairs = [];
    for (const problem of problems) {
      const theirs = problem.peers.get(peer);
      if (theirs?.ratio) pairs.push({ problem, peer: theirs, ...theirs.ratio });
    }
    // Streams, errors and the like have no group, regime or launch mode, so these filters do not
    // touch them.
    const passes = (item) =>
      found(item) && ['type', 'majors', 'run'].every((key) => !wanted.has(key) || wanted.get(key).has(item[key]));
    return {
      model, state, peer, problems, pairs, counts,
      streams: model.streams.filter(passes), errors: model.errors.filter(passes),
      comparisons: model.comparisons.filter(passes), tuned: model.tuned.filter(passes),
    };
  }

  // ---- Elements ----------------------------------------------------

  /** An element of a tag with classes, as in "div.box.wide". Attributes that are functions listen to events. Text of the
   *  data reaches the page only as text nodes and attributes. */
  function element(make, name, attributes, children) {
    const [tag, ...classes] = name.split('.');
    const node = make(tag);
    if (classes.length) node.setAttribute('class', classes.join(' '));
    for (const [key, value] of Object.entries(attributes ?? {})) {
      if (typeof value === 'function') node.addEventListener(key, value);
      else if (value === true) node.setAttribute(key, '');
      else if (value !== undefined && value !== false) node.setAttribute(key, value);
    }
    node.append(...children.flat(Infinity).filter((child) => child !== undefined && child !== null && child !== ''));
    return node;
  }
  const html = (name, attributes, ...children) =>
    element((tag) => document.createElement(tag), name, attributes, children);
  const svg = (name, attributes, ...children) =>
    element((tag) => document.createElementNS('http://www.w3.org/2000/svg', tag), name, attributes, children);
  /** A text of a chart. Classes also say how it is aligned: `middle`, `end`, or from its start. */
  const label = (x, y, text, classes, more) =>
    svg('text', { x: x.toFixed(1), y: y.toFixed(1), class: classes, ...more }, text);
  const spot = ({ x, y }) => `${x.toFixed(1)},${y.toFixed(1)}`;

  const byId = (id) => document.getElementById(id);

  // ---- Marks -------------------------------------------------------

  // Each series has a shape besides its colour, so that colours need not be told apart.
  const polygon = (corners, turn, inner) =>
    Array.from({ length: corners }, (_, corner) => {
      const angle = (2 * Math.PI * corner) / corners + turn;
      const radius = inner && corner % 2 ? inner : 1;
      return [radius * Math.sin(angle), -radius * Math.cos(angle)];
    });
  const cross = [[-1, -3], [1, -3], [1, -1], [3, -1], [3, 1], [1, 1], [1, 3], [-1, 3], [-1, 1], [-3, 1], [-3, -1], [-1, -1]];
  const SHAPES = [
    null, // a circle
    polygon(4, Math.PI / 4).map(([x, y]) => [x * 1.15, y * 1.15]),
    polygon(3, 0).map(([x, y]) => [x * 1.3, y * 1.3]),
    polygon(4, 0).map(([x, y]) => [x * 1.2, y * 1.2]),
    polygon(3, Math.PI).map(([x, y]) => [x * 1.3, y * 1.3]),
    cross.map(([x, y]) => [x * 0.4, y * 0.4]),
    polygon(10, 0, 0.5).map(([x, y]) => [x * 1.4, y * 1.4]),
    polygon(6, 0).map(([x, y]) => [x * 1.05, y * 1.05]),
    cross.map(([x, y]) => [(x - y) * 0.28, (x + y) * 0.28]),
  ];

  /** The path of a mark around a point, without the movement to it. */
  function shapePath(shape, radius) {
    const corners = SHAPES[shape % SHAPES.length];
    const arc = `a${radius},${radius} 0 1 0`;
    if (!corners) return `m${-radius},0${arc} ${2 * radius},0${arc} ${-2 * radius},0z`;
    let [x, y] = [0, 0];
    const steps = corners.map(([cornerX, cornerY], index) => {
      const step = `${index ? 'l' : 'm'}${(cornerX * radius - x).toFixed(2)},${(cornerY * radius - y).toFixed(2)}`;
      [x, y] = [cornerX * radius, cornerY * radius];
      return step;
    });
    return `${steps.join('')}z`;
  }

  /** One path with a mark at each point: thousands of elements would be slow. */
  const marksPath = (points, shape, radius) => {
    const mark = shapePath(shape, radius);
    return points.map((point) => `M${spot(point)}${mark}`).join('');
  };

  const COLOURS = 9;
  /** The look of the series with this index. Beyond the colours, shapes shift and lines are dashed. */
  const lookOf = (index) => ({
    colour: `c${index % COLOURS}`,
    shape: (index + Math.floor(index / COLOURS)) % SHAPES.length,
    dash: index >= COLOURS ? '6 3' : undefined,
  });
  const unknownTypes = [];
  /** Types have the same look in every report and under every filter. */
  function typeLook(type) {
    const known = TYPES.indexOf(type);
    if (known >= 0) return lookOf(known);
    if (!unknownTypes.includes(type)) unknownTypes.push(type);
    return lookOf(TYPES.length + unknownTypes.indexOf(type));
  }

  const swatch = ({ colour, shape }, hollow = false) =>
    svg('svg.swatch', { viewBox: '-7 -7 14 14', 'aria-hidden': 'true' },
      svg(`path.${hollow ? 'hollow' : 'filled'}.${colour}`, { d: `M0,0${shapePath(shape, 4.4)}` }));

  /** The look of what has no type. */
  const PLAIN = { colour: 'c-none', shape: 0 };

  const legend = (entries) => entries.map(({ look, text, hollow }) => html('li', null, swatch(look, hollow), text));

  // ---- Tooltips and announcements ----------------------------------

  function showTip({ title, rows, note }, x, y) {
    const tip = byId('tip');
    tip.replaceChildren(
      html('strong', null, title),
      html('dl', null, rows.map(([key, value]) => [html('dt', null, key), html('dd', null, value)])),
      note ? html('p', null, note) : '',
    );
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    const besides = x + 16 + width > innerWidth ? x - 16 - width : x + 16;
    tip.style.left = `${Math.max(8, Math.min(besides, innerWidth - width - 8))}px`;
    tip.style.top = `${Math.max(8, Math.min(y - height / 2, innerHeight - height - 8))}px`;
  }
  const hideTip = () => (byId('tip').hidden = true);
  const announce = (text) => (byId('live').textContent = text);

  /** The tooltip of a problem, beside the peer if it was compared. */
  function problemTip(problem, pair) {
    const side = ({ us, tflops }) => `${microseconds(us)} µs${tflops ? `, ${throughputText(tflops)} TFLOP/s` : ''}`;
    const rows = [];
    if (problem.label) rows.push(['part of', problem.label]);
    if (problem.group) rows.push(['group', problem.group]);
    if (problem.us) rows.push([OURS, side(problem)]);
    if (pair?.peer.us) rows.push([pair.peer.name, side(pair.peer)]);
    if (pair) rows.push(['ratio', `${ratioText(pair.ratio)} (${spreadText(pair)})`]);
    if (problem.share) rows.push(['of the ceiling', percent(problem.share)]);
    return { title: problem.problem, rows, note: 'Enter or click: show it in the table' };
  }

  // ---- Charts ------------------------------------------------------

  const HINT = 'Arrow keys go along a series, and up and down to another one. Enter shows the problem in the table.';
  const GRID_HINT = 'Arrow keys go from cell to cell.';
  const NEAR = 28;

  /** A chart that draws itself for the width that it has. It is one tab stop; arrow keys move between its points, which
   *  are {x, y, series, tip(), row, box}. `paint(width)` returns {width, height, nodes, points}. */
  class Chart {
    constructor(title, grid = false) {
      this.grid = grid;
      this.title = title;
      this.points = [];
      this.ring = svg('path.ring');
      this.svg = svg('svg', grid ? { role: 'group', 'aria-label': title } : { 'aria-hidden': 'true' });
      this.box = html('div.chart', {
        tabindex: '0', role: 'application', 'aria-roledescription': 'chart',
        'aria-label': `${title}. ${grid ? GRID_HINT : HINT}`,
        keydown: (event) => this.press(event), blur: () => this.leave(),
        focus: () => this.box.matches(':focus-visible') && this.go(this.current ?? this.ordered()[0]),
        pointermove: (event) => this.point(event), pointerdown: (event) => this.point(event),
        pointerleave: () => this.leave(), click: (event) => this.click(event),
      }, this.svg);
      this.node = html('div.plot', null, this.box, html('p.keys', { 'aria-hidden': 'true' }, grid ? GRID_HINT : HINT));
      new ResizeObserver(() => this.resize()).observe(this.box);
    }

    show(paint) {
      this.paint = paint;
      this.draw();
    }

    resize() {
      const width = this.box.clientWidth;
      if (width && width !== this.width) {
        this.width = width;
        if (this.paint) this.draw();
      }
    }

    draw() {
      this.width = this.width ?? (this.box.clientWidth || undefined);
      const { width, height, nodes, points } = this.paint(this.width ?? 720);
      for (const [key, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) {
        this.svg.setAttribute(key, value);
      }
      this.size = width;
      this.points = points;
      this.current = this.order = undefined;
      this.ring.setAttribute('d', '');
      this.svg.replaceChildren(...nodes, this.ring);
    }

    /** The points by series, and along each series. */
    ordered() {
      this.order = this.order ?? [...this.points].sort((a, b) => a.series - b.series || a.x - b.x || a.y - b.y);
      return this.order;
    }

    go(point, speak = true) {
      if (!point) return;
      this.current = point;
      const { x, y, box } = point;
      const path = box ? `M${box[0]},${box[1]}h${box[2]}v${box[3]}h${-box[2]}z` : `M${x},${y}${shapePath(0, 7)}`;
      this.ring.setAttribute('d', path);
      if (speak) this.box.scrollLeft = Math.max(0, x - this.box.clientWidth / 2);
      const bounds = this.svg.getBoundingClientRect();
      const scale = bounds.width / this.size || 1;
      const tip = point.tip();
      showTip(tip, bounds.left + x * scale, bounds.top + y * scale);
      if (speak) announce([tip.title, ...tip.rows.map((row) => row.join(' '))].join(', '));
    }

    leave() {
      this.ring.setAttribute('d', '');
      hideTip();
    }

    press(event) {
      if (event.key === 'Escape') this.leave();
      const here = this.current ?? this.ordered()[0];
      if (!here) return;
      if (event.key === 'Enter' && here.row !== undefined) showRow(here.row);
      const target = this.grid ? this.beside(here, event.key) : this.along(here, event.key);
      if (!target && event.key !== 'Enter') return;
      event.preventDefault();
      this.go(target);
    }

    /** The point to which a key leads along series. */
    along(here, key) {
      const order = this.ordered();
      const at = order.indexOf(here);
      const step = { ArrowRight: 1, ArrowLeft: -1, PageDown: 10, PageUp: -10, Home: -order.length, End: order.length }[key];
      const series = order.filter((point) => point.series === here.series);
      if (step) {
        const first = order.indexOf(series[0]);
        return series[Math.max(0, Math.min(at - first + step, series.length - 1))];
      }
      const turn = { ArrowDown: 1, ArrowUp: -1 }[key];
      if (!turn) return undefined;
      const other = turn > 0 ? order[order.indexOf(series[series.length - 1]) + 1] : order[order.indexOf(series[0]) - 1];
      if (!other) return here;
      const distance = (point) => Math.abs(point.x - here.x);
      const others = order.filter((point) => point.series === other.series);
      return others.reduce((best, point) => (distance(point) < distance(best) ? point : best));
    }

    /** The nearest point in the direction of an arrow, on a grid. */
    beside(here, key) {
      const [right, down] = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[key] ?? [];
      if (right === undefined) return undefined;
      let [best, least] = [here, Infinity];
      for (const point of this.points) {
        const [x, y] = [point.x - here.x, point.y - here.y];
        const ahead = x * right + y * down;
        const distance = ahead + 4 * Math.abs(right ? y : x);
        if (ahead > 1 && distance < least) [best, least] = [point, distance];
      }
      return best;
    }

    /** Shows the point that is nearest to the pointer. */
    point(event) {
      const bounds = this.svg.getBoundingClientRect();
      const scale = bounds.width / this.size || 1;
      const [x, y] = [(event.clientX - bounds.left) / scale, (event.clientY - bounds.top) / scale];
      let [best, least] = [undefined, NEAR * NEAR];
      for (const point of this.points) {
        const [across, down] = [Math.abs(point.x - x), Math.abs(point.y - y)];
        const inside = point.box && across <= point.box[2] / 2 && down <= point.box[3] / 2;
        const distance = point.box ? (inside ? 0 : Infinity) : across ** 2 + down ** 2;
        if (distance < least) [best, least] = [point, distance];
      }
      this.hovered = best;
      if (best) this.go(best, false);
      else this.leave();
    }

    /** A finger first shows a point; only a mouse, which has shown it before, opens the problem. */
    click(event) {
      if (event.pointerType === 'mouse' && this.hovered?.row !== undefined) showRow(this.hovered.row);
    }
  }

  /** Grid, ticks and labels of a plot's axes, and its title. An axis is {scale, ticks, text, title}. */
  function axes({ left, right, top, bottom }, x, y, title) {
    const nodes = [];
    for (const tick of y.ticks) {
      const at = y.scale(tick);
      nodes.push(svg('path.grid', { d: `M${left},${at.toFixed(1)}H${right}` }));
      nodes.push(label(left - 8, at + 4, (y.text ?? tickText)(tick), 'tick end'));
    }
    for (const tick of x.ticks) {
      const at = x.scale(tick);
      nodes.push(svg('path.grid', { d: `M${at.toFixed(1)},${top}V${bottom}` }));
      nodes.push(label(at, bottom + 18, (x.text ?? tickText)(tick), 'tick middle'));
    }
    nodes.push(svg('path.axis', { d: `M${left},${bottom}H${right}` }));
    nodes.push(label(right, bottom + 38, x.title, 'axis-title end'));
    const corner = { x: left - 44, y: top - 10 };
    nodes.push(svg('text.axis-title', corner, title ? svg('tspan.plot-title', null, title, ' ') : '', y.title));
    return nodes;
  }

  /** Where the axes of a plot are that is so wide and high and begins there. */
  const plotArea = (width, height, left = 0, top = 0) =>
    ({ left: left + 48, right: left + width - 20, top: top + 26, bottom: top + height - 46 });

  /** A logarithmic axis along an edge of a plot. */
  function logAxis(domain, pixels, title, gap) {
    const scale = logScale(domain, pixels);
    return { scale, ticks: logTicks(domain, scale, gap), title };
  }

  const chartHeight = (width) => Math.round(Math.max(300, Math.min(460, width * 0.5)));

  let clips = 0;
  /** A group that shows nothing outside of the plot. */
  function clipped({ left, right, top, bottom }, nodes) {
    const id = `clip${clips++}`;
    return [
      svg('clipPath', { id }, svg('rect', { x: left, y: top - 20, width: right - left, height: bottom - top + 20 })),
      svg('g', { 'clip-path': `url(#${id})` }, nodes),
    ];
  }

  // ---- Tables ------------------------------------------------------

  const scrollBox = (title, ...children) =>
    html('div.scroll', { tabindex: '0', role: 'region', 'aria-label': title }, children);

  /** A table without sorting. Titles of columns may be nodes; those from `first` on are numbers. */
  const plainTable = (title, heads, first, rows) => html('table', null, html('caption.unseen', null, title),
    html('thead', null, html('tr', null, heads.map((head, at) =>
      html(at < first ? 'th' : 'th.numeric', { scope: 'col' }, head)))),
    html('tbody', null, rows));

  const collator = new Intl.Collator('en', { numeric: true });

  /** Compares values of a column. Missing ones come last in both directions. */
  function compare(a, b, direction) {
    if (a === undefined || b === undefined) return (a === undefined) - (b === undefined);
    return direction * (typeof a === 'number' && typeof b === 'number' ? a - b : collator.compare(a, b));
  }

  /** A table that is sorted by a click on a header and shows a page of its rows. A column is {key, title, hint, numeric,
   *  value(row), cell(row)}; `details(row)` makes what a row opens to. */
  class Table {
    constructor({ title, columns, size = 100, sort = '', details, key, changed }) {
      Object.assign(this, { columns, size, sort, details, key, changed, page: 1, opened: new Set(), rows: [] });
      this.head = html('tr', null, details ? html('th.opener', { scope: 'col' }, html('span.unseen', null, 'Details')) : '',
        columns.map((column) => this.header(column)));
      this.body = html('tbody');
      this.shown = html('span');
      const turn = (by, text) => html('button', { type: 'button', click: () => {
        this.order(this.sort, this.page + by);
        this.node.scrollIntoView({ block: 'start' });
      } }, text);
      this.turns = [turn(-1, 'Previous'), turn(1, 'Next')];
      this.pager = html('nav.pager', { 'aria-label': `Pages of ${title}` }, this.turns[0], this.shown, this.turns[1]);
      this.node = html('div', null,
        scrollBox(title, html('table', null, html('caption.unseen', null, title), html('thead', null, this.head), this.body)),
        this.pager);
    }

    header(column) {
      const sorted = () => this.order(column.key === this.sort ? `-${column.key}` : column.key, 1);
      const cell = html(`th${column.numeric ? '.numeric' : ''}`, { scope: 'col', title: column.hint },
        html('button', { type: 'button', click: sorted }, column.title));
      cell.dataset.key = column.key;
      return cell;
    }

    order(sort, page) {
      Object.assign(this, { sort, page });
      if (this.changed) this.changed(this);
      else this.draw();
    }

    show(rows) {
      this.rows = rows;
      this.draw();
    }

    sorted() {
      const direction = this.sort.startsWith('-') ? -1 : 1;
      const column = this.columns.find(({ key }) => key === this.sort.replace(/^-/, ''));
      if (!column) return this.rows;
      const valued = this.rows.map((row) => [column.value(row), row]);
      return valued.sort(([a], [b]) => compare(a, b, direction)).map(([, row]) => row);
    }

    draw() {
      for (const cell of this.head.querySelectorAll('[data-key]')) {
        const { key } = cell.dataset;
        const direction = this.sort === key ? 'ascending' : this.sort === `-${key}` ? 'descending' : null;
        if (direction) cell.setAttribute('aria-sort', direction);
        else cell.removeAttribute('aria-sort');
      }
      const rows = this.sorted();
      const pages = Math.max(1, Math.ceil(rows.length / this.size));
      this.page = Math.max(1, Math.min(this.page || 1, pages));
      const first = (this.page - 1) * this.size;
      this.body.replaceChildren(...rows.slice(first, first + this.size).flatMap((row) => this.line(row)));
      this.pager.hidden = pages < 2;
      this.turns[0].disabled = this.page === 1;
      this.turns[1].disabled = this.page === pages;
      const last = Math.min(first + this.size, rows.length);
      this.shown.textContent = `${number(first + 1)} to ${number(last)} of ${number(rows.length)}`;
    }

    line(row) {
      const key = this.key?.(row);
      const cells = this.columns.map((column) =>
        html(`td${column.numeric ? '.numeric' : ''}${column.style ? `.${column.style}` : ''}`, null,
          column.cell ? column.cell(row) : column.value(row) ?? DASH));
      if (!this.details) return [html('tr', null, cells)];
      const line = html('tr', { 'data-row': key }, cells);
      const open = this.opened.has(key);
      const opener = html('button.expander', { type: 'button', 'aria-expanded': String(open), 'aria-label': 'Details' });
      opener.addEventListener('click', () => {
        const opens = !this.opened.has(key);
        if (opens) line.after(this.detail(row));
        else line.nextSibling.remove();
        this.opened[opens ? 'add' : 'delete'](key);
        opener.setAttribute('aria-expanded', opens);
      });
      line.prepend(html('td.opener', null, opener));
      return open ? [line, this.detail(row)] : [line];
    }

    detail(row) {
      return html('tr.details', null, html('td', { colspan: this.columns.length + 1 }, this.details(row)));
    }
  }

  /** Columns of texts, and of numbers, of which some may be missing. */
  const textual = (key, title, value, more) => ({ key, title, value, ...more });
  const numeric = (key, title, value, cell, hint) => ({ key, title, hint, numeric: true, value, cell: (row) => {
    const given = value(row);
    return given === undefined ? DASH : cell(given);
  } });

  /** A small chart in a table's cell, on an axis that its column shares. */
  const strip = (width, ...children) =>
    svg('svg.strip', { width, height: 18, viewBox: `0 0 ${width} 18`, 'aria-hidden': 'true' }, children);

  const STRIP = 84;
  const stripScale = logScale([0.8, 1.6], [3, STRIP - 3]);

  /** A ratio and its range. What lies beyond the axis ends at its edge. */
  function ratioStrip({ ratio, low, high }) {
    const at = (value) => Math.max(2, Math.min(stripScale(value), STRIP - 2)).toFixed(1);
    const tone = ratio < BEHIND ? 'behind' : ratio > 1 / BEHIND ? 'ahead' : 'even';
    return strip(STRIP,
      svg('path.one', { d: `M${at(1)},1V17` }),
      svg(`path.range.${tone}`, { d: `M${at(low)},9H${at(high)}` }),
      svg(`path.dot.${tone}`, { d: `M${at(ratio)},9${shapePath(tone === 'behind' ? 4 : tone === 'ahead' ? 2 : 0, 3.6)}` }));
  }

  const ratioCell = (row) => (row ? html('span.ratio', null, ratioStrip(row), html('b', null, ratioText(row.ratio)),
    html('small', null, `${ratioText(row.low)}–${ratioText(row.high)}`)) : DASH);

  const code = (text) => html('code', null, text);

  /** A command with a button that copies it. Lines break between its words only, not at their hyphens. */
  function commandLine(text) {
    const command = html('code', null, text.split(' ').flatMap((word) => [' ', html('span', null, word)]).slice(1));
    const copy = html('button.copy', {
      type: 'button',
      click: async () => {
        getSelection().selectAllChildren(command);
        try {
          await navigator.clipboard.writeText(text);
          copy.textContent = 'Copied';
        } catch {
          copy.textContent = 'Selected'; // A page without the right to the clipboard leaves the copying to the reader.
        }
        announce(copy.textContent);
      },
    }, 'Copy');
    return html('div.command', null, command, copy);
  }

  // ---- What is shown, and changes of it ------------------------------

  let model;
  let state;
  let view;
  let sections = [];
  let renderMs = 0;
  /** What follows the filters besides the sections. */
  const afterwards = [];

  /** Changes the state, the address and the page; `only` names the single section that the change touches. */
  function change(patch, only) {
    const filtered = Object.keys(patch).some((key) => FILTERS.includes(key));
    state = { ...state, ...(filtered ? { page: '1', row: '' } : {}), ...patch };
    writeAddress();
    render(only);
  }

  const writeAddress = () => history.replaceState(null, '', `#${writeState(state)}`);

  function render(only) {
    const start = performance.now();
    document.documentElement.dataset.theme = state.theme;
    hideTip();
    view = only ? { ...view, state } : select(model, state);
    for (const { node, update } of sections) if (!only || node.id === only) node.hidden = !update(view);
    if (!only) for (const sync of afterwards) sync();
    renderMs = performance.now() - start;
  }

  /** Shows the row of a problem, opened. */
  function showRow(index) {
    change({ row: String(index) }, 'problems');
    revealRow();
  }

  const problemLink = ({ index, problem }) => html('button.link', { type: 'button', click: () => showRow(index) }, problem);

  function revealRow() {
    const line = byId('problems').querySelector(`tr[data-row="${CSS.escape(state.row)}"]`);
    if (!line) return;
    line.scrollIntoView({ block: 'center', behavior: 'instant' });
    line.querySelector('button').focus({ preventScroll: true });
  }

  /** A section. `update(view, page)` fills it, and returns whether there is anything to show; page.say(...) sets its
   *  caption, and page.key(entries) its legend. */
  function section(id, title, { controls = [], parts = [] }, update) {
    const caption = html('p.caption');
    const key = html('ul.legend');
    const toolbar = controls.length ? html('div.toolbar', null, controls.map(({ node }) => node)) : '';
    const page = {
      say: (...texts) => caption.replaceChildren(...texts),
      key: (entries) => key.replaceChildren(...legend(entries)),
    };
    return {
      title,
      node: html('section.part', { id, 'aria-label': title }, html('h2', null, title), caption, toolbar, key, parts),
      update: (view) => {
        for (const { sync } of controls) sync();
        return update(view, page);
      },
    };
  }

  /** A control that chooses a value of the state for a section. */
  function choice(only, text, key, options) {
    const input = html('select', { change: () => change({ [key]: input.value }, only) },
      options.map(([value, name]) => html('option', { value }, name)));
    const node = html('label.choice', null, html('span', null, text), input);
    return { input, node, sync: () => (input.value = state[key]) };
  }

  /** The values of a filter in the whole report, in their usual order, so that looks do not depend on other filters. */
  function valuesOf(key) {
    const others = ['streams', 'errors', 'comparisons', 'tuned'].flatMap((list) => model[list]);
    const items = ['type', 'majors', 'run'].includes(key) ? [...model.problems, ...others] : model.problems;
    const values = [...new Set(items.map((item) => item[key]))].filter((value) => value !== undefined);
    const usual = { type: TYPES, regime: REGIMES }[key];
    const rank = (value) => (usual.includes(value) ? usual.indexOf(value) : usual.length);
    if (usual) return values.sort((a, b) => rank(a) - rank(b));
    return key === 'majors' || key === 'run' ? values.sort(collator.compare) : values;
  }

  // ---- Key figures ---------------------------------------------------

  /** A figure with its name and notes. Tests read it by its key. */
  function figure(key, value, text, name, note, style = '') {
    return html(`div.figure${style}`, { 'data-figure': key, 'data-value': value },
      html('dt', null, html('span', null, name), html('small', null, note)), html('dd', null, html('b', null, text)));
  }

  function shareBar(ratios) {
    const share = (test) => ratios.filter(test).length / ratios.length;
    const parts = [
      ['behind', share((ratio) => ratio < BEHIND), `slower, below ${BEHIND}`],
      ['even', share((ratio) => ratio >= BEHIND && ratio <= 1 / BEHIND), `equal within 3${NARROW}%`],
      ['ahead', share((ratio) => ratio > 1 / BEHIND), `faster, above ${number(1 / BEHIND, 2)}`],
    ];
    const bar = parts.filter(([, part]) => part).map(([tone, part]) => html(`span.${tone}`, { style: `flex-grow:${part}` }));
    return html('div.shares', null, html('div.bar', { 'aria-hidden': 'true' }, bar),
      html('ul', null, parts.map(([tone, part, text]) =>
        html(`li.${tone}`, null, html('b', null, percent(part)), ` ${text}`))));
  }

  /** How many problems have a wrong result of each library. Ours is always among them. */
  function wrongProblems(problems) {
    const libraries = problems.flatMap(({ peers }) => [...peers.keys()].map(libraryOf));
    const counts = new Map([OURS, ...libraries].map((library) => [library, 0]));
    for (const { faults } of problems) {
      const wrong = faults.filter((fault) => fault.wrong).map(({ who }) => (isOurs(who) ? OURS : who));
      for (const who of new Set(wrong)) counts.set(who, (counts.get(who) ?? 0) + 1);
    }
    return counts;
  }

  function figuresSection() {
    const body = html('div');
    return section('figures', 'Key figures', { parts: [body] }, ({ problems, pairs, peer }, { say }) => {
      const ratios = pairs.map(({ ratio }) => ratio);
      const figures = [];
      if (pairs.length) {
        const mean = geometricMean(ratios);
        const [low, high] = bootstrapInterval(ratios);
        const behind = ratios.filter((ratio) => ratio < BEHIND).length;
        const least = pairs.reduce((worst, pair) => (pair.ratio < worst.ratio ? pair : worst));
        const longer = mean >= 1 ? `${percent(mean - 1)} longer` : `${percent(1 - mean)} less time`;
        say(`In the geometric mean over ${counted(pairs.length, 'problem')}, ${peer} takes `,
          html('strong', null, longer), ` than ${OURS}.`);
        const among = problems.length > pairs.length
          ? `of ${number(problems.length)}; the others have no time of ${peer}` : `with ${peer}`;
        figures.push(
          figure('geometric-mean', mean, ratioText(mean), 'Geometric mean of the ratio',
            `95${NARROW}% interval ${ratioText(low)} to ${ratioText(high)}`, '.main'),
          figure('compared', pairs.length, number(pairs.length), 'Problems compared', among),
          figure('behind', behind / pairs.length, percent(behind / pairs.length), `Ratio below ${BEHIND}`,
            counted(behind, 'problem')),
          figure('least', least.ratio, ratioText(least.ratio), 'Lowest ratio', problemLink(least.problem)));
      } else {
        say(`${counted(problems.length, 'problem')} of ${OURS} ${problems.length === 1 ? 'was' : 'were'} measured` +
          `${peer ? `, none with a time of ${peer}` : ' without a peer'}.`);
      }
      for (const [who, count] of wrongProblems(problems)) {
        const style = count ? (who === OURS ? '.alarm' : '.warning') : '';
        figures.push(figure(`wrong:${who}`, count, number(count), 'Problems with a wrong result', `of ${who}`, style));
      }
      body.replaceChildren(html('dl.figures', null, figures), pairs.length ? shareBar(ratios) : '');
      return problems.length > 0;
    });
  }

  // ---- Ratio by group and type ---------------------------------------

  const groupOf = ({ problem }) => problem.group ?? 'no group';
  const BOX = innerWidth > 1400 ? 370 : 260;
  const BOX_MOST = 2.5;

  function boxStrip({ p5, p25, p50, p75, p95, least }, scale, most) {
    const at = (value) => scale(Math.min(value, most)).toFixed(1);
    return strip(BOX,
      svg('path.one', { d: `M${at(1)},-7V25` }),
      svg('path.whisker', { d: `M${at(p5)},9H${at(p95)}` }),
      svg('path.box', { d: `M${at(p25)},4.5H${at(p75)}V13.5H${at(p25)}z` }),
      svg('path.median', { d: `M${at(p50)},3V15` }),
      svg('path.least', { d: `M${at(least)},9${shapePath(0, 2.4)}` }),
      p95 > most ? svg('path.beyond', { d: `M${BOX - 5},5l7,4l-7,4z` }) : '');
  }

  function groupsSection() {
    const title = 'Ratio by group and type';
    const body = scrollBox(title);
    return section('groups', title, { parts: [body] }, ({ pairs, peer }, { say }) => {
      if (pairs.length === 0) return false;
      const row = (group, type, span, those) => ({ group, type, span, ...summary(those.map(({ ratio }) => ratio)) });
      const total = row('all', '', 1, pairs);
      const groups = [...groupBy(pairs, groupOf)].sort(([, a], [, b]) => b.length - a.length);
      const rows = groups.flatMap(([group, members]) =>
        byType(members).map(([type, those], index, types) => row(index ? '' : group, type, types.length, those)));
      const most = Math.min(BOX_MOST, Math.max(1.25, ...rows.map(({ p95 }) => p95)));
      const domain = [Math.min(0.8, total.least) / 1.02, most];
      const scale = logScale(domain, [4, BOX - 6]);
      say('Each row has the ratios of a group in a type. The box reaches from the 25th to the 75th percentile, the line ' +
        `from the 5th to the 95th, and the dot is the lowest ratio; ${OURS} is faster right of 1.` +
        (rows.some(({ p95 }) => p95 > most) ? ` An arrow means that the line goes on beyond ${most}.` : ''));
      const ticks = logTicks(domain, scale, 34).map((tick) => label(scale(tick), 13, tickText(tick), 'tick middle'));
      const percentiles = [5, 25, 50, 75, 95].map((part) => `${part}${NARROW}%`);
      const heads = ['Group', 'Type', 'Problems', 'Geom. mean', ...percentiles, `< ${BEHIND}`, 'Lowest', strip(BOX, ticks)];
      const line = (row) => html(`tr${row === total ? '.total' : row.group ? '.first' : ''}`, null,
        row.group ? html('th', { scope: 'rowgroup', rowspan: row.span }, row.group) : '',
        html('th.kind', { scope: 'row' }, row.type && swatch(typeLook(row.type)), row.type),
        html('td.numeric', null, number(row.count)),
        html('td.numeric.strong', null, ratioText(row.mean)),
        [row.p5, row.p25, row.p50, row.p75, row.p95].map((value) => html('td.numeric', null, ratioText(value))),
        html('td.numeric', null, percent(row.behind)),
        html('td.numeric', null, ratioText(row.least)),
        html('td.numeric', null, boxStrip(row, scale, most)));
      body.replaceChildren(plainTable(`Time of ${peer} over that of ${OURS}`, heads, 2, [line(total), ...rows.map(line)]));
      return true;
    });
  }

  // ---- Distribution --------------------------------------------------

  const KINDS = ['type', 'group', 'regime', 'majors', 'launch'];
  const NEAR_ONE = [0.75, 2];

  function distributionSection() {
    const title = 'Distribution of ratios';
    const by = choice('distribution', 'A line for each', 'by', KINDS.map((kind) => [kind, kind]));
    const axis = choice('distribution', 'Axis', 'axis', [['near', NEAR_ONE.join(' to ')], ['all', 'all ratios']]);
    const chart = new Chart(title);
    return section('distribution', title, { controls: [by, axis], parts: [chart.node] }, (view, { say, key }) => {
      const { pairs, peer, state } = view;
      // Types are few, and tell more apart than groups do.
      const kind = KINDS.includes(state.by) ? state.by : valuesOf('type').length > 1 ? 'type' : 'group';
      by.input.value = kind;
      if (pairs.length === 0) return false;
      const order = valuesOf(kind);
      const look = kind === 'type' ? typeLook : (name) => lookOf(order.indexOf(name));
      const series = [...groupBy(pairs, ({ problem }) => problem[kind])]
        .sort(([a], [b]) => order.indexOf(a) - order.indexOf(b))
        .map(([name, members]) => ({ name, look: look(name), members: members.sort((a, b) => a.ratio - b.ratio) }));
      key(series.map(({ name, look, members }) => ({ look, text: `${name} (${number(members.length)})` })));
      const [least, most] = extent(pairs.map(({ ratio }) => ratio), 1.01);
      const [low, high] = state.axis === 'all' ? [0, Infinity] : NEAR_ONE;
      const domain = [Math.max(low, Math.min(least, 0.95)), Math.min(high, Math.max(most, 1.05))];
      const inside = ({ ratio }) => ratio >= domain[0] && ratio <= domain[1];
      const beyond = pairs.length - pairs.filter(inside).length;
      say('A line shows which share of the problems has a ratio below the value on the axis: the further right it runs, ' +
        `the faster is ${OURS}.${beyond ? ` ${counted(beyond, 'problem')} lie${beyond === 1 ? 's' : ''} beyond this axis.` : ''}`);
      chart.show((width) => {
        const height = chartHeight(width);
        const area = plotArea(width, height);
        const x = logAxis(domain, [area.left, area.right], `ratio: time of ${peer} over time of ${OURS}`, 44);
        const heightOf = (share) => area.bottom - share * (area.bottom - area.top);
        const text = (share) => `${100 * share}${NARROW}%`;
        const y = { scale: heightOf, ticks: [0, 0.25, 0.5, 0.75, 1], text, title: 'share of problems' };
        const points = [];
        const lines = series.map(({ name, look, members }, index) => {
          const places = members.map((pair, rank) => ({ pair, series: index, row: pair.problem.index, x: x.scale(pair.ratio),
            y: heightOf((rank + 1) / members.length), tip: () => {
              const tip = problemTip(pair.problem, pair);
              return { ...tip, rows: [[kind, `${name}, ${percent((rank + 1) / members.length)} at or below`], ...tip.rows] };
            } }));
          points.push(...places.filter(({ pair }) => inside(pair)));
          const steps = places.map((place) => `H${place.x.toFixed(1)}V${place.y.toFixed(1)}`).join('');
          const marks = [0.1, 0.3, 0.5, 0.7, 0.9].map((part) => places[Math.floor(part * places.length)]);
          return svg(`g.${look.colour}`, null,
            svg('path.line', { d: `M${area.left - 9},${area.bottom}${steps}H${width}`, 'stroke-dasharray': look.dash }),
            svg('path.filled', { d: marksPath(marks, look.shape, 4) }));
        });
        const one = x.scale(1);
        return { width, height, points, nodes: [
          ...axes(area, x, y),
          svg('path.one', { d: `M${one},${area.top}V${area.bottom}` }),
          ...clipped(area, lines),
          area.right - one > 320 ? label(one + 8, area.top + 12, `${OURS} faster`, 'side') : '',
          one - area.left > 120 ? label(one - 8, area.top + 12, `${peer} faster`, 'side end') : '',
        ] };
      });
      return true;
    });
  }

  // ---- Throughput, roofline and energy -------------------------------

  const UNIT = 'TFLOP/s';

  /** Items by the type of their problem, in the usual order of types. */
  function byType(items) {
    const rank = ([type]) => (TYPES.includes(type) ? TYPES.indexOf(type) : TYPES.length);
    return [...groupBy(items, ({ problem }) => problem.type ?? 'no type')].sort((a, b) => rank(a) - rank(b));
  }

  const typeSeries = (items, hollow = false) => byType(items).map(([type, those]) => ({ type, hollow, items: those }));
  const typeEntries = (series) =>
    [...new Set(series.map(({ type }) => type))].map((type) => ({ look: typeLook(type), text: type }));

  /** A scatter plot on logarithmic axes, or one for each type. Series are {type, hollow, items}, and items are {problem, x,
   *  y, tip()}. `extras(x, y, types, domains)` makes what is drawn above the marks of a plot. */
  function paintScatter(width, { series, x, y, apart = false, tall = 540, radius, lines, extras }) {
    const plots = apart ? [...groupBy(series, ({ type }) => type)] : [['', series]];
    const most = Math.max(1, Math.min(plots.length, Math.floor(width / 270)));
    const gaps = (columns) => Math.ceil(plots.length / columns) * columns - plots.length;
    const columns = most > 2 && gaps(most - 1) < gaps(most) ? most - 1 : most;
    const wide = (width - 20 * (columns - 1)) / columns;
    const single = Math.max(320, Math.min(tall, wide * 0.56));
    const high = Math.round(plots.length > 1 ? Math.max(250, wide * 0.8) : single);
    const marks = series.reduce((sum, { items }) => sum + items.length, 0);
    const size = radius ?? (wide < 500 ? 2.4 : marks > 300 ? 3 : 4);
    const points = [];
    const nodes = plots.flatMap(([title, members], at) => {
      const area = plotArea(wide, high, (at % columns) * (wide + 20), Math.floor(at / columns) * (high + 8));
      const types = members.map(({ type }) => type);
      const domains = [x, y].map(({ margin, also }, axis) => extent([
        ...members.flatMap(({ items }) => items.map((item) => (axis ? item.y : item.x))), ...(also?.(types) ?? [])], margin));
      const xAxis = logAxis(domains[0], [area.left, area.right], x.title, 54);
      const yAxis = logAxis(domains[1], [area.bottom, area.top], y.title, 26);
      const place = (item) => ({ x: xAxis.scale(item.x), y: yAxis.scale(item.y) });
      const layers = members.map((member) => {
        const { type, hollow, items } = member;
        const look = typeLook(type);
        const places = items.map(place);
        const index = series.indexOf(member);
        items.forEach(({ problem, tip }, item) => points.push({ ...places[item], series: index, row: problem.index, tip }));
        const joined = (lines?.(items) ?? []).map((line) => line.map(place).map(spot).join('L'));
        return svg(`g.${look.colour}`, null,
          joined.map((line) => svg('path.line', { d: `M${line}`, 'stroke-dasharray': hollow ? '4 3' : undefined })),
          svg(`path.${hollow ? 'hollow' : 'filled'}${items.length > 250 ? '.dense' : ''}`,
            { d: marksPath(places, look.shape, size) }));
      });
      const above = extras?.(xAxis.scale, yAxis.scale, types, domains) ?? [];
      return [...axes(area, xAxis, yAxis, title), ...layers, ...clipped(area, above)];
    });
    return { width, height: Math.ceil(plots.length / columns) * (high + 8), nodes, points };
  }

  const apartChoice = (only) => choice(only, 'Types', 'types', [['apart', 'a plot for each'], ['together', 'together']]);

  /** Whether types have plots of their own: if nobody chose, many problems would hide each other in one. */
  function isApart({ input }, series) {
    const problems = series.reduce((sum, { items }) => sum + items.length, 0);
    if (state.types === 'auto') input.value = problems > 400 ? 'apart' : 'together';
    return input.value === 'apart';
  }

  /** Lines through the cubes (m = n = k) with the same majors. */
  function cubeLines(items) {
    const cubes = items.filter(({ problem: { m, n, k, batch } }) => m === n && n === k && !batch);
    return [...groupBy(cubes, ({ problem }) => problem.majors ?? '').values()].map((line) => line.sort((a, b) => a.x - b.x));
  }

  /** Items of a scatter plot, with the tooltips of their problems. */
  const itemsOf = ({ problems, pairs }, place) => {
    const pairOf = new Map(pairs.map((pair) => [pair.problem, pair]));
    return problems.map((problem) => {
      const pair = pairOf.get(problem);
      return { problem, ...place(problem, pair), tip: () => problemTip(problem, pair) };
    }).filter(({ x, y }) => x && y);
  };

  function throughputSection() {
    const title = 'Throughput against size';
    const types = apartChoice('throughput');
    const show = choice('throughput', 'Show', 'show', [['both', 'both'], ['ours', `${OURS} only`], ['peer', 'peer only']]);
    const joined = () => change({ cubes: input.checked ? 'yes' : 'no' }, 'throughput');
    const input = html('input', { type: 'checkbox', change: joined });
    const cubes = { node: html('label.choice', null, input, html('span', null, 'Join cubes (m = n = k) with lines')),
      sync: () => (input.checked = state.cubes === 'yes') };
    const chart = new Chart(title);
    return section('throughput', title, { controls: [types, show, cubes], parts: [chart.node] }, (view, { say, key }) => {
      const { peer, state } = view;
      const size = ({ operations }) => operations && operations / 1e9;
      const theirs = itemsOf(view, (problem, pair) => ({ x: size(problem), y: pair?.peer.tflops }));
      const ours = itemsOf(view, (problem) => ({ x: size(problem), y: problem.tflops }));
      const hidden = theirs.length && ours.length ? state.show : 'both';
      const series = [...(hidden === 'ours' ? [] : typeSeries(theirs, true)), ...(hidden === 'peer' ? [] : typeSeries(ours))];
      if (series.length === 0) return false;
      const both = new Set(series.map(({ hollow }) => hollow)).size === 2;
      say(`Each mark is a problem${both ? `, filled for ${OURS} and hollow for ${peer}` : ''}. Throughput rises with the work ` +
        'of a problem until arithmetic or memory limits it.');
      const sides = [{ look: PLAIN, text: OURS }, { look: PLAIN, text: peer, hollow: true }];
      key([...typeEntries(series), ...(both ? sides : [])]);
      const apart = isApart(types, series);
      const lines = state.cubes === 'yes' ? cubeLines : undefined;
      chart.show((width) => paintScatter(width, { series, apart, lines,
        x: { title: 'operations, 10⁹', margin: 1.3 }, y: { title: UNIT, margin: 1.3 } }));
      return true;
    });
  }

  const origin = (measured) => (measured ? 'measured' : 'nominal');
  const ceilingsOf = (types) =>
    new Map(types.map((type) => [type, model.ceilings.get(type)]).filter(([, ceiling]) => ceiling));

  /** What the ceilings are, and whether they were measured. */
  function ceilingSentence(ceilings) {
    const { memory } = model;
    const measured = [...ceilings].filter(([, ceiling]) => ceiling.measured).map(([type]) => type);
    const mixed = measured.length && measured.length < ceilings.size;
    const whence = mixed ? `measured for ${listed(measured)}, else nominal` : origin(measured.length);
    return `The ceilings are ${listed([
      ...(memory ? [`${number(memory.gbPerS)} GB/s of memory (${origin(memory.measured)})`] : []),
      ...(ceilings.size ? [`the arithmetic rate of ${ceilings.size === 1 ? 'the type' : 'each type'} (${whence})`] : []),
    ])}.`;
  }

  function rooflineSection() {
    const title = 'Roofline';
    const types = apartChoice('roofline');
    const chart = new Chart(title);
    return section('roofline', title, { controls: [types], parts: [chart.node] }, (view, { say, key }) => {
      const series = typeSeries(itemsOf(view, ({ intensity, tflops }) => ({ x: intensity, y: tflops })));
      const ceilings = ceilingsOf(series.map(({ type }) => type));
      if (series.length === 0 || (!model.memory && ceilings.size === 0)) return false;
      say(`Each mark is a problem of ${OURS}. The nearer it lies to the slope or to the line of its type, the less is left ` +
        `to gain. ${ceilingSentence(ceilings)}`);
      key(typeEntries(series));
      const peaks = (types) => [...ceilingsOf(types).values()].map(({ tflops }) => tflops);
      const apart = isApart(types, series);
      chart.show((width) => paintScatter(width, { series, apart, extras: roof,
        x: { title: 'operations per byte', margin: 1.3 }, y: { title: UNIT, margin: 1.6, also: peaks } }));
      return true;
    });
  }

  /** The lines of a roofline with their labels. Ceilings that are close share a label. */
  function roof(x, y, types, [[low, high]]) {
    const nodes = [];
    const titles = [];
    const slope = model.memory && model.memory.gbPerS / 1000;
    const ceilings = [...ceilingsOf(types)].sort(([, a], [, b]) => b.tflops - a.tflops);
    const ridge = (tflops) => Math.max(low, Math.min(high, slope ? tflops / slope : low));
    if (slope) {
      const end = ceilings.length ? ridge(ceilings[0][1].tflops) : high;
      const [fromX, fromY, toX, toY] = [x(low), y(low * slope), x(end), y(end * slope)];
      nodes.push(svg('path.roof', { d: `M${fromX},${fromY}L${toX},${toY}` }));
      // In a small plot the label has no room, and the caption has the figure too.
      if (x(high) - fromX > 400) {
        const [middleX, middleY] = [(fromX + toX) / 2, (fromY + toY) / 2];
        const turn = (Math.atan2(toY - fromY, toX - fromX) * 180) / Math.PI;
        nodes.push(label(middleX, middleY - 7, `${number(model.memory.gbPerS)} GB/s`, 'roof-title middle',
          { transform: `rotate(${turn.toFixed(1)} ${middleX.toFixed(1)} ${middleY.toFixed(1)})` }));
      }
    }
    for (const [type, { tflops }] of ceilings) {
      const at = y(tflops);
      const begin = spot({ x: x(ridge(tflops)), y: at });
      nodes.push(svg(`path.roof.${typeLook(type).colour}`, { d: `M${begin}H${x(high).toFixed(1)}` }));
      const last = titles[titles.length - 1];
      if (last && at - last.at < 14) last.texts.push(`${type} ${tickText(tflops)}`);
      else titles.push({ at, texts: [`${type} ${tickText(tflops)}`] });
    }
    return [...nodes, ...titles.map(({ at, texts }) => label(x(high) - 4, at - 5, texts.join(', '), 'roof-title end'))];
  }

  function energySection() {
    const title = 'Energy';
    const chart = new Chart('Energy against time');
    const table = new Table({ title: 'Energy by group', columns: [
      textual('group', 'Group', (row) => row.group),
      numeric('count', 'Problems', (row) => row.count, (count) => number(count)),
      numeric('energy', 'Energy ratio', (row) => row.energy, ratioText, 'geometric mean'),
      numeric('time', 'Time ratio', (row) => row.time, ratioText, 'geometric mean'),
    ] });
    return section('energy', title, { parts: [chart.node, table.node] }, (view, { say, key }) => {
      const items = itemsOf(view, (problem, pair) =>
        ({ x: pair?.ratio, y: pair?.peer.joules && problem.joules && pair.peer.joules / problem.joules }));
      if (items.length === 0) return false;
      for (const item of items) {
        const { tip, problem, y } = item;
        const { joules } = problem.peers.get(view.peer);
        const both = `${significant(problem.joules, 4)} J beside ${significant(joules, 4)} J`;
        const more = [['energy', both], ['energy ratio', ratioText(y)]];
        item.tip = () => ({ ...tip(), rows: [...tip().rows, ...more] });
      }
      const row = (group, those) => ({ group, count: those.length,
        energy: geometricMean(those.map(({ y }) => y)), time: geometricMean(those.map(({ x }) => x)) });
      const groups = [...groupBy(items, groupOf)].map(([group, those]) => row(group, those));
      table.show(groups.length > 1 ? [row('all', items), ...groups] : groups);
      say(`The energy ratio is the energy of ${view.peer} for a product over that of ${OURS}: above 1, ${OURS} needs less. ` +
        'Above the diagonal it saves more energy than time. The table has geometric means.');
      const series = typeSeries(items);
      key(typeEntries(series));
      const also = () => [1];
      chart.show((width) => paintScatter(width, { series, tall: 380, radius: items.length > 100 ? 3 : 5,
        x: { title: 'time ratio', margin: 1.02, also }, y: { title: 'energy ratio', margin: 1.02, also },
        extras: (x, y, _, [[left, right], [bottom, top]]) => {
          const [low, high] = [Math.max(left, bottom), Math.min(right, top)];
          return [svg('path.one', { d: `M${x(1)},${y(bottom)}V${y(top)}M${x(left)},${y(1)}H${x(right)}` }),
            svg('path.diagonal', { d: `M${x(low)},${y(low)}L${x(high)},${y(high)}` })];
        } }));
      return true;
    });
  }

  // ---- Heat map ------------------------------------------------------

  // Bounds of the colours of ratios, symmetric around 1.
  const HEAT = [0.67, 0.8, 0.9, 0.97, 1.03, 1.11, 1.25, 1.5];
  const heatLevel = (ratio) => HEAT.filter((bound) => ratio >= bound).length;
  const octave = (value) => Math.floor(Math.log2(value));
  const octaves = (first, count = 1) => [2 ** first, 2 ** (first + count) - 1];
  const octavesText = (first, count) => [...new Set(octaves(first, count))].map((bound) => number(bound)).join(' to ');
  const compact = (value) => (value >= 1024 ? `${value / 1024}k` : String(value));

  /** Up to five ranges of k that cover the report, as options of a choice. */
  function kRanges() {
    const ks = model.problems.map(({ k }) => positive(k)).filter(Boolean).map(octave);
    if (ks.length === 0) return [];
    const [low, high] = extent(ks);
    const count = Math.ceil((high - low + 1) / 5);
    const ranges = Array.from({ length: Math.ceil((high - low + 1) / count) }, (_, index) => low + index * count);
    return ranges.map((first) => [octaves(first, count).join('-'), octavesText(first, count)]);
  }

  function heatSection() {
    const title = 'Ratio by m, n and k';
    const range = choice('heat', 'Range of k', 'k', [['all', 'all'], ...kRanges()]);
    const chart = new Chart(title, true);
    const bounds = [`< ${HEAT[0]}`, ...HEAT.map((bound) => `≥ ${bound}`)];
    const levels = html('ol.levels', { 'aria-label': 'Colours of ratios' },
      bounds.map((text, level) => html('li', null, html(`span.h${level}`), text)));
    return section('heat', title, { controls: [range], parts: [levels, chart.node] }, ({ pairs, peer, state }, { say }) => {
      const sized = pairs.filter(({ problem: { m, n, k } }) => positive(m) && positive(n) && positive(k));
      if (sized.length === 0) return false;
      const [low, high] = /^\d+-\d+$/.test(state.k) ? state.k.split('-').map(Number) : [0, Infinity];
      const those = sized.filter(({ problem: { k } }) => k >= low && k <= high);
      say('Each cell is an octave of m and of n, and its number is the geometric mean of the ratio over the problems in it. ' +
        `In blue cells ${OURS} is faster than ${peer}, and in orange ones slower.${those.length ? '' : ' No problem has a k in this range.'}`);
      const cells = groupBy(those, ({ problem: { m, n } }) => `${octave(m)} ${octave(n)}`);
      chart.show((width) => (those.length ? paintHeat(width, those, cells) : { width, height: 40, nodes: [], points: [] }));
      return true;
    });
  }

  function paintHeat(width, pairs, cells) {
    const [firstM, lastM] = extent(pairs.map(({ problem }) => octave(problem.m)));
    const [firstN, lastN] = extent(pairs.map(({ problem }) => octave(problem.n)));
    const [columns, rows] = [lastM - firstM + 1, lastN - firstN + 1];
    const [left, top] = [64, 26];
    const wide = Math.max(34, Math.min(64, Math.floor((width - left - 12) / columns)));
    const high = Math.min(wide, 40);
    const [right, bottom] = [left + columns * wide, top + rows * high];
    const nodes = [svg('path.frame', { d: `M${left},${top}H${right}V${bottom}H${left}z` })];
    const points = [];
    for (let column = 0; column <= columns; column++) {
      nodes.push(label(left + column * wide, bottom + 16, compact(2 ** (firstM + column)), 'tick middle'));
    }
    for (let row = 0; row <= rows; row++) {
      nodes.push(label(left - 8, bottom - row * high + 4, compact(2 ** (firstN + row)), 'tick end'));
    }
    nodes.push(label(Math.max(right, 150), bottom + 34, 'm, rows of D', 'axis-title end'),
      label(0, top - 12, 'n, columns of D', 'axis-title'));
    for (const [key, those] of cells) {
      const [m, n] = key.split(' ').map(Number);
      const ratios = those.map(({ ratio }) => ratio);
      const mean = geometricMean(ratios);
      const box = [left + (m - firstM) * wide + 1, bottom - (n - firstN + 1) * high + 1, wide - 2, high - 2];
      const [x, y] = [box[0] + box[2] / 2, box[1] + box[3] / 2];
      const where = `m ${octavesText(m)}, n ${octavesText(n)}`;
      const text = `${where}: ratio ${ratioText(mean)}, ${counted(those.length, 'problem')}`;
      nodes.push(svg(`g.cell.h${heatLevel(mean)}`, { role: 'img', 'aria-label': text },
        svg('rect', { x: box[0], y: box[1], width: box[2], height: box[3], rx: 2 }),
        label(x, y + 4, number(mean, mean < 10 ? 2 : 1), 'middle')));
      points.push({ x, y, box, series: 0, tip: () => ({ title: where, rows: [['geometric mean', ratioText(mean)],
        ['problems', number(those.length)], ['lowest', ratioText(Math.min(...ratios))],
        ['highest', ratioText(Math.max(...ratios))]] }) });
    }
    return { width: Math.max(right + 16, Math.min(width, 320)), height: bottom + 44, nodes, points };
  }

  // ---- Wrong results -------------------------------------------------

  const FAULTS = ['wrong result', 'did not run', 'refused'];
  const faultOf = ({ wrong, refused }) => FAULTS[wrong ? 0 : refused ? 2 : 1];

  function faultsSection() {
    const lead = html('div');
    const counts = scrollBox('Faults of each library');
    const table = new Table({ title: 'Wrong results and refusals', size: 10, columns: [
      textual('who', 'Library', (row) => row.who, { hint: 'candidates are numbered in the order of the library’s heuristic',
        cell: ({ who, rank }) => [who, rank === undefined ? '' : html('small.aside', null, ` candidate ${rank}`)] }),
      textual('what', 'What', faultOf, { cell: (row) => html(`span.tag.${row.wrong ? 'bad' : 'mild'}`, null, faultOf(row)) }),
      textual('problem', 'Problem', (row) => row.problem.problem, { cell: ({ problem }) => problemLink(problem) }),
      textual('why', 'Why', (row) => row.why, { style: 'prose' }),
    ] });
    return section('faults', 'Wrong results and refusals', { parts: [lead, counts, table.node] }, ({ problems }) => {
      const faults = problems.flatMap((problem) => problem.faults.map((fault) => ({ ...fault, problem })));
      const weight = (fault) => (isOurs(fault.who) ? 0 : FAULTS.length) + FAULTS.indexOf(faultOf(fault));
      faults.sort((a, b) => weight(a) - weight(b));
      lead.replaceChildren(verdict(problems.length, faults));
      const heads = ['Library', 'Wrong results', 'Did not run', 'Refused', 'Problems with a wrong result'];
      const lines = [...groupBy(faults, ({ who }) => who)].map(([who, those]) => {
        const numbers = FAULTS.map((what) => those.filter((fault) => faultOf(fault) === what).length);
        numbers.push(new Set(those.filter(({ wrong }) => wrong).map(({ problem }) => problem)).size);
        return html(isOurs(who) ? 'tr.alarm' : 'tr', null, html('th', { scope: 'row' }, who),
          numbers.map((count) => html('td.numeric', null, number(count))));
      });
      counts.replaceChildren(plainTable('Faults of each library', heads, 1, lines));
      table.node.hidden = counts.hidden = faults.length === 0;
      table.show(faults);
      return problems.length > 0;
    });
  }

  function verdict(problems, faults) {
    const notice = (tone, text) => html(`p.notice.${tone}`, tone === 'alarm' ? { role: 'alert' } : null, text);
    const all = counted(problems, 'problem');
    if (faults.length === 0) return notice('good', `No library computed a wrong result or refused to run, in ${all}.`);
    const ours = faults.filter(({ who }) => isOurs(who));
    const wrong = ours.filter((fault) => fault.wrong).length;
    if (wrong) return notice('alarm', `${OURS} computed ${counted(wrong, 'wrong result')} in ${all}. The table begins with these.`);
    const right = `${OURS} computed no wrong result`;
    if (ours.length) return notice('warning', `${right} in ${all}, but did not run ${number(ours.length)} of them.`);
    return notice('good', `${right} and ran in all ${all}. The table has the faults of other libraries.`);
  }

  // ---- Streams -------------------------------------------------------

  function streamsSection() {
    const title = 'Streams of small products';
    const body = scrollBox(title);
    const chart = new Chart('Microseconds per product against its operations');
    return section('streams', title, { parts: [chart.node, body] }, ({ streams }, { say, key }) => {
      const timesOf = ({ methods }) => array(methods).map((method) => ({ ...method, us: range(method.us) })).filter(({ us }) => us);
      const timed = streams.map((stream) => ({ ...stream, times: timesOf(stream) })).filter(({ times }) => times.length);
      if (timed.length === 0) return false;
      say('Many products of one size follow each other, and a method is the way in which they reach the device. Times are ' +
        'microseconds per product, the median of the rounds. Lines join cubes, and the shortest time of each column is bold.');
      const unique = (of) => [...new Set(timed.flatMap(({ times }) => times.map(of)))];
      const contestants = unique(({ contestant }) => contestant);
      const methods = unique(({ method }) => method);
      const rows = contestants.flatMap((contestant, colour) => methods.map((method, shape) => {
        const is = (time) => time.contestant === contestant && time.method === method;
        const cells = timed.map(({ times }) => times.find(is)?.us);
        return { contestant, method, look: { colour: lookOf(colour).colour, shape }, cells };
      })).filter(({ cells }) => cells.some(Boolean));
      const least = timed.map((_, column) => Math.min(...rows.map(({ cells }) => cells[column]?.ratio ?? Infinity)));
      const several = new Set(timed.map(({ run }) => run)).size > 1;
      const heads = ['Contestant', 'Method',
        ...timed.map(({ problem, run }) => [problem, several ? html('small.aside', null, run) : ''])];
      body.replaceChildren(plainTable(title, heads, 2, rows.map(({ contestant, method, cells }, index) => {
        const again = rows[index - 1]?.contestant === contestant;
        return html(again ? 'tr' : 'tr.first', null,
          html('th', { scope: 'row' }, again ? html('span.unseen', null, contestant) : contestant), html('td', null, method),
          cells.map((us, column) => html(us?.ratio === least[column] ? 'td.numeric.strong' : 'td.numeric', null,
            us ? significant(us.ratio, 3) : DASH)));
      })));
      key([...contestants.map((text, index) => ({ look: { colour: lookOf(index).colour, shape: 0 }, text })),
        ...methods.map((text, shape) => ({ look: { ...PLAIN, shape }, text }))]);
      const spots = rows.flatMap((row, series) => row.cells.map((us, column) => ({ row, series, us, stream: timed[column] })))
        .filter(({ us, stream }) => us && positive(stream.operations));
      chart.node.hidden = spots.length === 0;
      if (spots.length) chart.show((width) => paintStreams(width, rows, spots));
      return true;
    });
  }

  function paintStreams(width, rows, spots) {
    const height = chartHeight(width);
    const area = plotArea(width, height);
    const size = ({ stream }) => stream.operations / 1e9;
    const x = logAxis(extent(spots.map(size), 1.3), [area.left, area.right], 'operations of a product, 10⁹', 56);
    const y = logAxis(extent(spots.map(({ us }) => us.ratio), 1.3), [area.bottom, area.top], 'µs per product', 26);
    const points = spots.map(({ row, series, us, stream }) => ({
      x: x.scale(size({ stream })), y: y.scale(us.ratio), series, cube: / (\d+)x\1x\1$/.test(stream.problem),
      tip: () => ({ title: `${row.contestant}, ${row.method}`, rows: [
        ['problem', stream.problem], ['time', `${significant(us.ratio, 4)} µs per product`],
        ['rounds', `${significant(us.low, 4)} to ${significant(us.high, 4)} µs`], ['products', number(stream.count ?? 0)],
      ] }),
    }));
    const layers = rows.map(({ look }, series) => {
      const those = points.filter((point) => point.series === series).sort((a, b) => a.x - b.x);
      const line = those.filter(({ cube }) => cube).map(spot);
      return svg(`g.${look.colour}`, null, line.length ? svg('path.line.thin', { d: `M${line.join('L')}` }) : '',
        svg('path.filled', { d: marksPath(those, look.shape, 4.5) }));
    });
    return { width, height, points, nodes: [...axes(area, x, y), ...layers] };
  }

  // ---- Errors, releases and tuned kernels ----------------------------

  function errorsSection() {
    const tag = ({ within_bound: within }) => (within === undefined ? undefined : within ? 'within' : 'wrong');
    const table = new Table({ title: 'Errors of results', size: 20, columns: [
      textual('problem', 'Problem', (row) => row.problem, { style: 'code' }),
      textual('values', 'Values', (row) => row.values),
      textual('name', 'Result of', (row) => row.name),
      numeric('normwise', 'Normwise', (row) => row.normwise, scientific, '‖D − R‖ / ‖R‖, Frobenius norm'),
      numeric('elementwise', 'Elementwise', (row) => row.elementwise, scientific,
        'largest error of an element over the sum of the magnitudes of its products'),
      numeric('bias', 'Bias', (row) => row.bias, scientific, 'below 0 where results are too small'),
      numeric('of_bound', 'Of the bound', (row) => row.of_bound, (value) => significant(value, 3),
        'largest part of its bound that the error of an element takes'),
      numeric('not_finite', 'Not finite', (row) => row.not_finite, (value) => number(value), 'elements that are infinite or NaN'),
      textual('verdict', 'Verdict', tag, { cell: (row) =>
        (tag(row) ? html(`span.tag.${row.within_bound ? 'good' : 'bad'}`, null, tag(row)) : DASH) }),
    ] });
    return section('errors', 'Errors of results', { parts: [table.node] }, ({ errors }, { say }) => {
      const rows = errors.flatMap(({ problem, values, results }) =>
        array(results).map((result) => ({ ...result, problem, values })));
      const ours = rows.filter((row) => isOurs(row.name) && tag(row));
      const wrong = ours.filter((row) => !row.within_bound).length;
      const most = Math.max(0, ...ours.map(({ of_bound: part }) => part ?? 0));
      const judged = `${counted(ours.length, 'result')} of ${OURS}`;
      say('Results are compared with a reference of higher precision. ', wrong
        ? html('strong.bad-news', null, `${number(wrong)} of ${judged} ${wrong === 1 ? 'is' : 'are'} outside of the derived bound.`)
        : ours.length ? `All ${judged} are within the derived error bound; the closest takes ${significant(most, 2)} of it.` : '');
      table.show(rows);
      return rows.length > 0;
    });
  }

  const COMPARED = new Map([
    ['launch', 'launches'], ['jobs', 'jobs of the resident kernel'], ['calls', 'calls from the host']]);

  function comparisonsSection() {
    const kindOf = ({ kind }) => COMPARED.get(kind) ?? kind;
    const table = new Table({ title: 'Comparison of releases', size: 25, sort: 'ratio', columns: [
      textual('problem', 'Problem', (row) => row.problem, { style: 'code' }),
      textual('kind', 'Measured', kindOf),
      numeric('old', 'Old, µs', (row) => positive(row.old_us), microseconds),
      numeric('new', 'New, µs', (row) => positive(row.new_us), microseconds),
      { ...numeric('ratio', 'Old over new', (row) => row.ratio, ratioText, 'above 1 the new release is faster'), cell: ratioCell },
    ] });
    return section('comparisons', 'Comparison of releases', { parts: [table.node] }, ({ comparisons }, { say }) => {
      const rows = comparisons.map((row) => ({ ...row, ...range(row.ratio) })).filter(({ low }) => low);
      const kinds = [...groupBy(rows, kindOf)].map(([kind, those]) =>
        `${ratioText(geometricMean(those.map(({ ratio }) => ratio)))} over ${number(those.length)} ${kind}`);
      const behind = rows.filter(({ ratio }) => ratio < BEHIND).length;
      say('The ratio is the time of the old release over that of the new one: above 1, the new one is faster. Its geometric ' +
        `mean is ${listed(kinds)}. Below ${BEHIND} ${behind === 1 ? 'is' : 'are'} ${counted(behind, 'row')}.`);
      table.show(rows);
      return rows.length > 0;
    });
  }

  function tunedSection() {
    const table = new Table({ title: 'Tuned kernels', size: 25, columns: [
      textual('problem', 'Problem', (row) => row.problem, { style: 'code' }),
      textual('picked', 'Picked by the heuristic', (row) => row.picked, { style: 'code' }),
      textual('chosen', 'Chosen by the tuner', (row) => row.chosen,
        { style: 'code', cell: ({ picked, chosen }) => (picked === chosen ? html('span.aside', null, 'the same') : chosen) }),
      numeric('trials', 'Trials', (row) => row.trials, (trials) => number(trials)),
      { ...numeric('ratio', 'Pick over finalist', (row) => row.range?.ratio, ratioText,
        'time of the heuristic’s pick over that of the tuner’s finalist'), cell: (row) => ratioCell(row.range) },
    ] });
    return section('tuned', 'Tuned kernels', { parts: [table.node] }, ({ tuned }, { say }) => {
      const changed = tuned.filter(({ picked, chosen }) => picked !== chosen).length;
      say('The autotuner timed several kernels for each problem. It chose another kernel than the heuristic for ' +
        `${number(changed)} of ${counted(tuned.length, 'problem')}.`);
      table.show(tuned.map((row) => ({ ...row, range: range(row.ratio) })));
      return tuned.length > 0;
    });
  }

  // ---- All problems --------------------------------------------------

  function problemDetails({ problem }) {
    const rows = [];
    const add = (key, value) => value && rows.push(html('dt', null, key), html('dd', null, value));
    add('Part of', problem.label);
    add('Kernel', problem.kernel && code(problem.kernel));
    add('Launch', problem.launch);
    add('Operations', problem.operations && `${significant(problem.operations / 1e9, 4)}·10⁹`);
    add('Bytes of A, B and D', problem.bytes && number(problem.bytes));
    add('Intensity', problem.intensity && `${significant(problem.intensity, 4)} operations per byte`);
    add('Roofline ceiling', problem.ceiling && `${throughputText(problem.ceiling)} ${UNIT}`);
    add('Energy', problem.joules && `${significant(problem.joules, 4)} J for a product`);
    add('SM clock', positive(problem.mhz) && `${number(problem.mhz)} MHz`);
    for (const { name, us, ratio, joules, algorithm } of problem.peers.values()) {
      add(name, [us && `${microseconds(us)} µs`, ratio && `ratio ${ratioText(ratio.ratio)} (${spreadText(ratio)})`,
        joules && `${significant(joules, 4)} J`, algorithm && `algorithm ${algorithm}`].filter(Boolean).join(', '));
    }
    for (const fault of problem.faults) add(`${fault.who}, ${faultOf(fault)}`, fault.why);
    add('Run', problem.run);
    const command = commandFor(problem.problem, view.peer);
    add('Measure it again', command && [commandLine(command.text), command.exact ? '' : html('small', null,
      'The command has no options for all of this problem, so it measures the plain problem of this size.')]);
    return html('dl.facts', null, rows);
  }

  function problemsSection() {
    const table = new Table({
      title: 'All problems', key: ({ problem }) => problem.index, details: problemDetails,
      changed: ({ sort, page }) => change({ sort, page: String(page), row: '' }, 'problems'),
      columns: [
        textual('problem', 'Problem', ({ problem }) => problem.problem, { style: 'code' }),
        textual('group', 'Group', ({ problem }) => problem.group),
        textual('regime', 'Regime', ({ problem }) => problem.regime, { hint: 'what bounds the problem on an ideal device' }),
        numeric('us', 'Ours, µs', ({ problem }) => problem.us, microseconds),
        numeric('tflops', UNIT, ({ problem }) => problem.tflops, throughputText),
        numeric('share', 'Of ceiling', ({ problem }) => problem.share, percent, 'share of the roofline ceiling'),
        numeric('peer', 'Peer, µs', ({ pair }) => pair?.peer.us, microseconds),
        { ...numeric('ratio', 'Ratio', ({ pair }) => pair?.ratio, ratioText,
          'time of the peer over ours: median, smallest and largest of the rounds'), cell: ({ pair }) => ratioCell(pair) },
        textual('kernel', 'Kernel', ({ problem }) => problem.kernel,
          { style: 'kernel', cell: ({ problem: { kernel } }) => html('span', { title: kernel }, kernel ?? DASH) }),
      ],
    });
    return section('problems', 'All problems', { parts: [table.node] }, ({ problems, pairs, state }, { say }) => {
      say('Click on a header to sort. A row opens to its details and to the command that measures the problem again.');
      const pairOf = new Map(pairs.map((pair) => [pair.problem, pair]));
      table.rows = problems.map((problem) => ({ problem, pair: pairOf.get(problem) }));
      Object.assign(table, { sort: state.sort, page: Number(state.page) });
      const at = state.row ? table.sorted().findIndex(({ problem }) => String(problem.index) === state.row) : -1;
      if (at >= 0) {
        table.page = Math.floor(at / table.size) + 1;
        table.opened.add(Number(state.row));
      }
      table.draw();
      return problems.length > 0;
    });
  }

  // ---- Filters -------------------------------------------------------

  /** A menu of the values of a filter. It stays while the page changes, so that it keeps the focus. */
  function filterMenu(key) {
    const single = key === 'peer';
    const values = single ? model.peers : valuesOf(key);
    const options = values.map((value) => {
      const input = html('input', { type: single ? 'radio' : 'checkbox', name: `filter-${key}`, change: () => choose() });
      const count = html('small');
      return { value, input, count, node: html('label', null, input, html('span', null, value), count) };
    });
    const choose = () => {
      const picked = options.filter(({ input }) => input.checked).map(({ value }) => value);
      change({ [key]: single ? picked[0] : picked });
    };
    const chosen = html('span.value');
    const head = html('summary', null, html('span.name', null, key), chosen);
    const all = html('button.link', { type: 'button', click: () => change({ [key]: [] }) }, 'All');
    const box = html('div.options', null, options.map((option) => option.node), single ? '' : all);
    // The list of a menu near the right edge moves to the left, into the page.
    const place = () => {
      box.style.left = '0';
      if (node.open) box.style.left = `${Math.min(0, innerWidth - 8 - box.getBoundingClientRect().right)}px`;
    };
    const leave = ({ relatedTarget: next }) => {
      if (next && !node.contains(next)) node.open = false;
    };
    const node = html('details.menu', { name: 'filter', toggle: place, focusout: leave, keydown: (event) => {
      if (event.key !== 'Escape' || !node.open) return;
      node.open = false;
      head.focus();
    } }, head, box);
    const sync = () => {
      const picked = single ? [view.peer].filter(Boolean) : state[key];
      for (const { value, input, count } of options) {
        input.checked = picked.includes(value);
        if (!single) count.textContent = number(view.counts.get(key).get(value) ?? 0);
      }
      const several = `${picked.length} of ${values.length}`;
      chosen.textContent = picked.length > 1 ? several : picked[0] ?? 'all';
      node.classList.toggle('active', state[key].length > 0);
      // A filter with a single value would change nothing.
      node.hidden = values.length < 2 && state[key].length === 0;
    };
    return { node, sync };
  }

  function buildFilters() {
    const menus = ['peer', ...LISTS].map(filterMenu);
    let waiting;
    const search = html('input', { type: 'search', placeholder: 'Problem, kernel or label',
      'aria-label': 'Search in problems, kernels and labels', input: () => {
        clearTimeout(waiting);
        waiting = setTimeout(() => change({ search: search.value }), 120);
      } });
    const count = html('output', { id: 'count' });
    const reset = html('button', { id: 'reset', type: 'button',
      click: () => change(Object.fromEntries(FILTERS.map((key) => [key, LISTS.includes(key) ? [] : '']))) }, 'Reset');
    const filters = byId('filters');
    const toggle = html('button.toggle', { type: 'button', 'aria-controls': 'bar', 'aria-expanded': 'false',
      click: () => toggle.setAttribute('aria-expanded', filters.classList.toggle('open')) }, 'Filters');
    filters.append(html('div.inner', null, toggle, html('div.bar', { id: 'bar' }, menus.map(({ node }) => node), search),
      html('div.left', null, count, reset)));
    filters.hidden = model.problems.length === 0;
    document.addEventListener('pointerdown', (event) => {
      for (const menu of filters.querySelectorAll('details[open]')) if (!menu.contains(event.target)) menu.open = false;
    });
    afterwards.push(() => {
      menus.forEach(({ sync }) => sync());
      if (document.activeElement !== search) search.value = state.search;
      const [left, total] = [view.problems.length, counted(model.problems.length, 'problem')];
      count.textContent = left === model.problems.length ? total : `${number(left)} of ${total}`;
      const active = FILTERS.filter((key) => state[key].length);
      reset.disabled = active.length === 0;
      filters.dataset.active = active.map((key) => `${key}: ${[state[key]].flat().join(', ')}`).join('; '); // For print.
    });
  }

  // ---- Head, contents and foot ---------------------------------------

  const THEMES = ['auto', 'light', 'dark'];

  function themeButton() {
    const button = html('button.theme', { type: 'button',
      click: () => change({ theme: THEMES[(THEMES.indexOf(state.theme) + 1) % THEMES.length] }) });
    afterwards.push(() => {
      const sign = { light: '☀', dark: '☾' }[state.theme] ?? '◐';
      button.replaceChildren(html('span', { 'aria-hidden': 'true' }, sign), ` ${state.theme}`);
      button.setAttribute('aria-label', `Theme: ${state.theme}. Change it`);
    });
    return button;
  }

  function buildHead() {
    const { runs, peers, problems } = model;
    const all = (key) => [...new Set(runs.map((run) => run[key]).filter(Boolean))].sort(collator.compare);
    const devices = all('device');
    const rivals = listed(peers);
    const title = model.title ??
      `${OURS}${rivals ? ` against ${rivals}` : ''}${devices.length ? ` on ${listed(devices)}` : ''}`;
    document.title = title;
    const facts = [['Device', devices], ['Driver', all('driver')], ['CUDA', all('cuda')], [OURS, all('version')],
      ['cuBLASLt', all('cublaslt')], ['Measured', [dates(all('date'))]], ['Runs', [number(runs.length)]]];
    const products = counted(problems.length, 'matrix product');
    const subject = problems.length ? `${products}${rivals ? `, timed alternately with ${rivals}` : ''}. `
      : 'Measurements of matrix products.';
    const howToRead = ['The ratio is the time of the peer over that of ', OURS, ': ',
      html('b', null, `above 1, ${OURS} is faster`), `. A ratio of 1.05 means that the peer takes 5${NARROW}% longer. ` +
      'Each ratio is the median of several rounds.'];
    const shown = facts.map(([key, values]) => [key, values.join(', ')]).filter(([, text]) => text);
    byId('head').append(
      html('div.top', null, html('p.brand', null, OURS, html('span', null, ' report')), themeButton()),
      html('h1', null, title),
      html('p.subject', null, subject, rivals ? howToRead : ''),
      html('dl.facts', null, shown.map(([key, text]) =>
        html('div', null, html('dt', null, key), html('dd', null, text)))));
  }

  /** Links to the sections, of which the one in view is marked. */
  function buildContents() {
    const links = new Map(sections.map(({ node, title }) => [node, html('a', { href: `#${node.id}` }, title)]));
    byId('contents').append(html('ol', null, [...links.values()].map((link) => html('li', null, link))));
    const visible = new Set();
    const observer = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) visible[isIntersecting ? 'add' : 'delete'](target);
      const first = [...links.keys()].find((node) => visible.has(node));
      for (const [node, link] of links) link.setAttribute('aria-current', String(node === first));
    }, { rootMargin: '-110px 0px -50% 0px' });
    for (const node of links.keys()) observer.observe(node);
    afterwards.push(() => {
      for (const [node, link] of links) link.parentNode.hidden = node.hidden;
    });
  }

  /** Says that nothing is shown, and why. */
  function emptyNotice() {
    const notice = html('p.notice', { id: 'empty' });
    afterwards.push(() => {
      notice.hidden = sections.some(({ node }) => !node.hidden);
      notice.textContent = FILTERS.some((key) => state[key].length)
        ? 'Nothing passes these filters. Reset them to see all problems.' : 'This report holds no measurements.';
    });
    return notice;
  }

  function buildFoot() {
    const { runs, made } = model;
    const conditions = ({ kind, date, device, driver, cuda, cublaslt, version, power_limit_watts: watts, note }) => [
      kind, date && dates([date]), device, driver && `driver ${driver}`, cuda && `CUDA ${cuda}`,
      cublaslt && `cuBLASLt ${cublaslt}`, version && `${OURS} ${version}`, watts && `limit ${watts} W`, note,
    ].filter(Boolean).join(' · ');
    const lines = runs.map((run) => html('li', null,
      html('div', null, html('h3', null, run.name), html('p', null, conditions(run))), run.command ? commandLine(run.command) : ''));
    const caption = 'Every figure of this report comes from these runs. Their commands measure it again.';
    if (lines.length) byId('foot').append(html('h2', null, 'Runs'), html('p.caption', null, caption), html('ul.runs', null, lines));
    const command = array(made.command).map(quoted).join(' ');
    const origin = `Made by pgemm ${made.version ?? ''}${made.date ? ` on ${dates([made.date])}` : ''}.`;
    byId('foot').append(html('div.made', null, html('p', null, origin), command ? commandLine(command) : ''));
  }

  // ---- Start ---------------------------------------------------------

  // Control characters and marks of text direction could disguise a text. Fields that are null
  // count as absent.
  const DISGUISES = /[\p{Cc}\p{Cs}\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu;
  const clean = (text) => text.replace(/\s+/g, ' ').replace(DISGUISES, '\ufffd');
  const revive = (_, value) => (typeof value === 'string' ? clean(value) : value ?? undefined);

  function start() {
    let data;
    try {
      data = JSON.parse(byId('data').textContent, revive);
      if (data?.schema !== 2) throw new Error(`its schema is ${data?.schema}, and this page reads 2`);
    } catch (error) {
      const text = `The data of this report cannot be read: ${error.message}.`;
      byId('report').append(html('p.notice.alarm', { role: 'alert' }, text));
      return;
    }
    model = prepare(data);
    state = parseState(location.hash);
    sections = [figuresSection, groupsSection, distributionSection, throughputSection, rooflineSection, energySection, heatSection,
      faultsSection, streamsSection, errorsSection, comparisonsSection, tunedSection, problemsSection].map((make) => make());
    buildHead();
    buildFilters();
    byId('report').append(emptyNotice(), ...sections.map(({ node }) => node));
    buildContents();
    buildFoot();
    render();
    if (state.row) revealRow();
    addEventListener('hashchange', () => {
      // A link to a section holds no state. The address goes back to the state, so that it can
      // still be shared.
      if (/^#[^=]+$/.test(location.hash)) return writeAddress();
      state = parseState(location.hash);
      render();
      if (state.row) revealRow();
    });
  }

  start();

  return {
    statistics: { geometricMean, quantile, bootstrapInterval, summary },
    scales: { logScale, logTicks },
    format: { number, ratio: ratioText, microseconds, percent, dates },
    state: {
      parse: parseState, write: writeState, current: () => state,
      set: (hash) => {
        state = parseState(hash);
        writeAddress();
        render();
      },
    },
    prepare, select, commandFor,
    view: () => view,
    get renderMs() {
      return renderMs;
    },
  };
})();
