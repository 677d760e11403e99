// A saved policy, policy.json, decision by decision. The guide "Run a policy in another system" specifies the format.
//
//   const policy = readPolicy(await (await fetch("policy.json")).json());
//   let state = start();
//   const advice = advise(policy, { map: 61, lactate: 2.4, ward: "icu" }, state);
//   // advice.action: the action, or null: the decision is left to the clinician
//   state = record(policy, state, advice, actionThatWasTaken);

export class Refused extends Error {}

const refuse = (words) => { throw new Refused(words); };
const KINDS = [
  "privrl policy on states, 1", "privrl assisted policy on states, 1",
  "privrl policy on measurements, 1", "privrl assisted policy on measurements, 1",
];
const LARGEST_WEIGHT = 1e300;  // without a limit, products stay finite
const REACH = 1.5, HALF = 0.5, LEAST_PROBABILITY = 0.01;

// The JSON of a policy, checked: a damaged one never advises. Verify the file first with the certificate next to it
// (`privrl certify`).
export function readPolicy(content) {
  if (!KINDS.includes(content?.kind)) refuse(`kind must be one of ${KINDS.join("; ")}`);
  if ("class" in content) refuse("the policy has a class of its own, and runs only as that class, in Python");
  const assisted = content.kind.includes("assisted"), measured = content.kind.includes("measurements");
  const actions = checkPolicy(content, assisted, measured), kept = measured && assisted ? content.assistance : content;
  const supported = (b, i) => b >= kept.least_support && (measured || kept.strength[i] > 0);
  return {
    content, assisted, actions, columns: measured ? content.columns : undefined,
    states: measured ? 0 : (assisted ? content.advice : content.steps[0]).length,
    horizon: measured && !assisted ? Infinity : kept.horizon,
    maxRatio: assisted ? limit(kept.max_ratio) : 1,
    maxWeight: assisted ? limit(kept.max_weight) : Infinity,
    leastSupport: assisted ? kept.least_support : 0,
    withheld: assisted && !kept.support.some(supported),  // no decision ever has enough support
  };
}

// What is kept from one decision of an episode to the next: plain numbers.
export const start = () => ({ step: 0, weight: 1, previous: null });

// A random number in [0, 1): 53 bits.
export const randomDraw = () => Number(crypto.getRandomValues(new BigUint64Array(1))[0] >> 11n) / 2 ** 53;

// The advice for one decision: `action` (null: left to the clinician, for a `reason`), `unusual` entries, the
// `probability` of advice, and for `record` the `choice` with the factors of the running weight. Do not show `choice`
// if the decision is left to the clinician. A policy that was withheld has no choice. `state`: what `record` returned
// after the decision before; without it, the decision is the first one of an episode. `draw`: in [0, 1), a new one for
// every decision; null: the most probable choice, and no advice that is not certain.
export function advise(policy, observation, state = start(), draw = randomDraw()) {
  if (draw !== null && !(draw >= 0 && draw < 1)) refuse("draw must lie in [0, 1)");
  checkEpisode(policy, state);
  const { choice, support = 1, strength = 1, unusual = [], why } = policy.columns
    ? chooseOnMeasurements(policy, observation, state) : chooseInState(policy, observation, state, draw);
  const advice = (reason, probability, if_taken, otherwise) => ({
    action: reason ? null : choice, reason, unusual, probability, choice: choice ?? null, if_taken, otherwise,
  });
  if (policy.withheld) return { ...advice("withheld", 0, 1, 1), choice: null };
  if (why) return advice(why, 0, 1, 1);
  if (!policy.assisted) return advice("", 1, 1, 1);
  const left = state.weight > 0 && policy.maxWeight < Infinity ? policy.maxWeight / state.weight : Infinity;
  const ratio = Math.min(Math.max(left, 1), policy.maxRatio);
  if (!(ratio > 1) && policy.maxRatio > 1) return advice("weight reached", 0, 1, 1);
  if (!(support >= policy.leastSupport && ratio > 1)) return advice("too little support", 0, 1, 1);
  const most = strength > 0 ? 1 + Math.min(strength, 1) * (ratio - 1) : 1;
  if (!(most > 1)) return advice("no advantage", 0, 1, 1);
  const alpha = support < 1 ? Math.min((most - 1) * support / (1 - support), 1) : 1;
  const if_taken = Math.min(1 - alpha + alpha / Math.min(support, 1), most);
  return advice((draw === null ? alpha === 1 : draw < alpha) ? "" : "not drawn", alpha, if_taken, 1 - alpha);
}

// The state for the next decision, after `action` was taken, by advice or by the clinician.
export function record(policy, state, advice, action) {
  checkEpisode(policy, state);
  checkAction(policy, action, "action");
  const factor = action === advice.choice ? advice.if_taken : advice.otherwise;
  return { step: state.step + 1, weight: Math.min(state.weight * factor, policy.maxWeight, LARGEST_WEIGHT), previous: action };
}

// Refuses a state of which a part was lost, such as a weight that JSON has turned into null.
function checkEpisode(policy, state) {
  const { step, weight, previous } = state ?? {}, largest = Math.min(policy.maxWeight, LARGEST_WEIGHT);
  if (!isWhole(step, 0) || !isNumber(weight, 0, largest)) {
    refuse(`the state of an episode must have a step that is a whole number from 0 and a weight from 0 to ${largest}; ` +
      "this one does not, so the episode cannot be continued with advice: leave the rest of it to the clinician");
  }
  if (previous !== null) checkAction(policy, previous, "previous");
}

function chooseInState({ content, states, horizon }, observation, state, draw) {
  const at = readState(content, states, observation);
  if (state.step >= horizon) return { why: "past the horizon" };
  const found = content.steps ? content.steps[content.steps.length > 1 ? state.step : 0][at] : content.advice[at];
  const choice = Array.isArray(found) ? drawn(found, draw) : found;
  if (!allowed(content.rules, [at], ["state"], state.previous)(choice)) return { why: "rules" };
  return { choice, support: content.support?.[at], strength: content.strength?.[at] };
}

function readState(content, states, observation) {
  if (typeof observation === "object" && observation !== null) {
    if (Object.keys(observation).join() !== "state") refuse("an observation must have the entry state and no other");
    observation = observation.state;
  }
  if (typeof observation === "string") {
    const names = content.state_names ?? [], at = names.indexOf(observation);
    if (at < 0 || names.lastIndexOf(observation) !== at) refuse("the name of the state is unknown, or two states have it");
    return at;
  }
  if (!Number.isInteger(observation) || observation < 0 || observation >= states) {
    refuse(`a state must be a whole number in [0, ${states})`);
  }
  return observation;
}

function drawn(chances, draw) {
  if (draw === null) return chances.reduce((best, one) => one[1] > best[1] ? one : best)[0];
  let left = draw * chances.reduce((sum, [, chance]) => sum + chance, 0);
  for (const [action, chance] of chances) if ((left -= chance) < 0) return action;
  return chances.at(-1)[0];
}

function chooseOnMeasurements({ content, columns, assisted, actions, horizon }, observation, state) {
  const { row, unusual } = readRow(columns, observation);
  if (state.step >= horizon) return { unusual, why: "past the horizon" };
  const phi = features(content, columns, row);
  const likely = [...Array(actions).keys()]
    .map((a) => clip(dot(phi, content.practice.map((weights) => weights[a])), LEAST_PROBABILITY, 1, LEAST_PROBABILITY));
  const may = allowed(content.rules, row, columns.map((column) => column.name), state.previous);
  if (!likely.some((_, a) => may(a))) return { unusual, why: "rules" };
  const least = content.support * Math.max(...likely.filter((_, a) => may(a)));
  const gains = content.advantages.map((weights) => dot(phi, weights));
  const scores = likely.map((p, a) => may(a) && p >= least ? gains[a] + content.anchor * Math.log(p) : -Infinity);
  const choice = scores.indexOf(Math.max(...scores));
  if (!assisted) return { choice, unusual };
  const kept = content.assistance, upTo = (edges, x) => edges.filter((edge) => edge <= x).length;
  const whole = likely.reduce((sum, p) => sum + p, 0), place = upTo(kept.probability_edges, likely[choice] / whole);
  const support = kept.support[(place * actions + choice) * actions + likely.indexOf(Math.max(...likely))];
  const ahead = gains[choice] - dot(likely, gains) / whole, unit = kept.advantage_unit;
  return { choice, support, strength: unit > 0 ? clip(ahead / unit, 0, 1, 0) : 1, unusual };
}

// Numbers in the order of the columns, NaN if missing; and remarks on entries that are missing or outside the bounds.
function readRow(columns, observation) {
  const inOrder = Array.isArray(observation), names = columns.map((column) => column.name);
  if (inOrder && observation.length !== columns.length) refuse(`an observation must hold ${names.join(", ")}`);
  if (!inOrder && (typeof observation !== "object" || observation === null)) refuse("give an object or an array");
  const unknown = inOrder ? [] : Object.keys(observation).filter((name) => !names.includes(name));
  if (unknown.length) refuse(`${unknown[0]} is not a column of this policy; its columns are ${names.join(", ")}`);
  const row = columns.map((column, i) => entry(column, inOrder ? observation[i]
    : Object.hasOwn(observation, column.name) ? observation[column.name] : null, inOrder));
  const unusual = columns.flatMap((column, i) => {
    const remark = Number.isNaN(row[i]) ? (column.missing ? "missing" : "unexpectedly missing")
      : row[i] < column.low ? "below the bounds" : row[i] > column.high ? "above the bounds" : null;
    return remark ? [{ column: column.name, remark }] : [];
  });
  return { row, unusual };
}

function entry(column, value, inOrder) {
  if (value === null || value === undefined || Number.isNaN(value)) return NaN;
  const category = column.kind === "category";
  if (category && !inOrder) {
    const text = ["string", "boolean"].includes(typeof value) || Number.isInteger(value) ? String(value) : "";
    const at = column.values.indexOf(text);
    return at >= 0 ? at : refuse(`${column.name} is not one of its categories: ${column.values.join(", ")}`);
  }
  if (typeof value !== "number" || !Number.isFinite(value)) refuse(`${column.name} must be a finite number`);
  if (category && !(Number.isInteger(value) && value >= 0 && value < column.values.length)) {
    refuse(`${column.name} must be the position of a category in its list`);
  }
  return value;
}

function features({ terms, centre, half_width }, columns, row) {
  const place = (name) => columns.findIndex((column) => column.name === name);
  const u = Object.create(null), gone = Object.create(null);
  terms.measurements.forEach((name, i) => {
    const { low, high, log } = columns[place(name)], x = row[place(name)], f = log ? Math.log : (v) => v;
    const position = 2 * (f(clip(x, low, high, NaN)) - f(low)) / (f(high) - f(low)) - 1;
    gone[name] = Number.isNaN(x) ? 1 : 0;
    u[name] = clip((position - centre[i]) / half_width[i], -REACH, REACH, 0);
  });
  const all = terms.measurements.map((name) => u[name]);
  return [
    HALF, ...all, ...all.map((v) => v * v - HALF), ...terms.products.map(([a, b]) => u[a] * u[b]),
    ...terms.missing.map((name) => HALF * gone[name]),
    ...terms.categories.flatMap((name) =>
      columns[place(name)].values.map((_, k) => row[place(name)] === k ? HALF : 0)),
  ];
}

// Whether the rules allow an action. A rule applies unless one of its conditions is known to be false.
function allowed(rules = [], row, names, previous) {
  const applying = rules.filter((rule) => rule.if.every((condition) => {
    const x = row[names.indexOf(condition.column)], { test, bound, values } = condition;
    if (Number.isNaN(x)) return test !== "known";
    switch (test) {
      case "<": return x < bound;
      case "<=": return x <= bound;
      case ">": return x > bound;
      case ">=": return x >= bound;
      case "in": return values.includes(x);
      case "known": return true;
      case "missing": return false;
      default: return true;
    }
  }));
  const lists = applying.map((rule) => rule.allowed[rule.allowed.length > 1 && previous !== null ? 1 + previous : 0]);
  return (action) => lists.every((list) => list.includes(action));
}

function checkAction({ actions }, action, what) {
  if (!Number.isInteger(action) || action < 0 || action >= actions) refuse(`${what} must be the number of an action`);
}

const limit = (value) => value === "inf" ? Infinity : value;
const dot = (left, right) => left.reduce((sum, x, i) => sum + x * right[i], 0);
const clip = (x, low, high, nan = low) => Number.isNaN(x) ? nan : Math.min(Math.max(x, low), high);

// What a policy must hold, in the order of mdp/policy_format.py. Bounds keep every later sum and product finite.
const isNumber = (x, low = -1e100, high = 1e100) => typeof x === "number" && x >= low && x <= high;
const isWhole = (x, low, below = Infinity) => Number.isInteger(x) && x >= low && x < below;
const isShare = (x) => isNumber(x, 0, 1);
const isLimit = (x) => x === "inf" || isNumber(x, 1, Number.MAX_VALUE);
const isText = (x) => typeof x === "string";
const isObject = (x) => typeof x === "object" && x !== null && !Array.isArray(x);
const isList = (x, fits, length = x?.length) => Array.isArray(x) && x.length === length && x.every((one) => fits(one));
const differ = (list) => new Set(list).size === list.length;
const need = (found, expected) => { if (!found) refuse(`the policy is damaged: ${expected}`); };

// The number of actions; Infinity if the policy does not say.
function checkPolicy(content, assisted, measured) {
  const { num_actions = assisted && !("rules" in content) ? Infinity : 0, rules = [] } = content;
  const names = measured ? checkMeasured(content) : ["state"];
  const actions = measured ? content.advantages.length : num_actions;
  if (!measured) {
    need(actions === Infinity || isWhole(actions, 1, 2 ** 20), "num_actions must be a whole number from 1 to 2^20 - 1");
    checkStates(content, actions, assisted);
  }
  if (assisted) {
    const kept = measured ? content.assistance : content;
    need(isObject(kept), "assistance must be an object");
    checkAssistance(kept, measured ? actions : null);
  }
  for (const part of ["state_names", "action_names"]) {
    need(isList(part in content ? content[part] : [], isText), `${part} must be a list of texts`);
  }
  need(isList(rules, (rule) => isRule(rule, names, actions)), "rules must have known tests of known columns, and lists of actions");
  return actions;
}

function checkStates({ advice, support, strength, horizon, steps, state_names }, actions, assisted) {
  const isAction = (x) => isWhole(x, 0, actions), sum = (pairs) => pairs.reduce((total, [, chance]) => total + chance, 0);
  const isChance = (pair) => isList(pair, () => true, 2) && isAction(pair[0]) && isNumber(pair[1], 0, 2);
  const isChoice = (x) => isAction(x) || isList(x, isChance) && sum(x) > 0 && sum(x) < 1e9;
  if (assisted) {
    need(isList(advice, isAction) && advice.length, "advice must hold actions");
    need(isList(support, isShare, advice.length), "support must hold a number in [0, 1] by state");
    need(isList(strength, isShare, advice.length), "strength must hold a number in [0, 1] by state");
  } else {
    need(isWhole(horizon, 1), "horizon must be a whole number above 0");
    need(isList(steps, (row) => isList(row, isChoice) && row.length), "steps must hold actions by state");
    const even = [1, horizon].includes(steps.length) && steps.every((row) => row.length === steps[0].length);
    need(even, "steps must have one row, or one for each step, all of one length");
  }
  const states = (assisted ? advice : steps[0]).length;
  need(state_names === undefined || isList(state_names, isText, states), "state_names must hold a text by state");
}

// The names of the columns.
function checkMeasured({ columns, terms, centre, half_width, advantages, practice, anchor, support }) {
  need(isList(columns, isColumn) && columns.length, "columns must describe measurements and categories");
  const names = columns.map((column) => column.name), of = (kind) => columns.filter((column) => column.kind === kind);
  need(differ(names), "columns must have different names");
  const numeric = of("feature").map((column) => column.name);
  const sizes = new Map(of("category").map((column) => [column.name, column.values.length]));
  const { measurements, products, missing, categories } = isObject(terms) ? terms : {};
  const named = isList(measurements, (name) => numeric.includes(name)) && differ(measurements);
  need(named, "terms.measurements must name measurements, each once");
  const isTerm = (name) => measurements.includes(name), count = measurements.length;
  need(isList(products, (pair) => isList(pair, isTerm, 2)), "terms.products must hold pairs of them");
  need(isList(missing, isTerm), "terms.missing must name some of them");
  need(isList(categories, (name) => sizes.has(name)), "terms.categories must name categories");
  need(isList(centre, (x) => isNumber(x), count), "centre must hold a number by measurement");
  need(isList(half_width, (x) => isNumber(x) && x > 0, count), "half_width must hold a number above 0 by measurement");
  const dim = 1 + 2 * count + products.length + missing.length + categories.reduce((sum, name) => sum + sizes.get(name), 0);
  const isRow = (length) => (row) => isList(row, (x) => isNumber(x), length);
  need(isList(advantages, isRow(dim)) && advantages.length, "advantages must hold a number by action and feature");
  need(isList(practice, isRow(advantages.length), dim), "practice must hold a number by feature and action");
  need(isNumber(anchor), "anchor must be a number");
  need(isShare(support), "support must be a number in [0, 1]");
  return names;
}

function isColumn(one) {
  if (!isObject(one) || !isText(one.name) || !one.name || typeof one.missing !== "boolean") return false;
  const { kind, values, low, high, log } = one;
  if (kind === "category") return isList(values, (v) => isText(v) && v) && values.length >= 2 && differ(values);
  return kind === "feature" && isNumber(low) && isNumber(high) && low < high && typeof log === "boolean" && (!log || low > 0);
}

// Limits; and, on measurements, the table of supports.
function checkAssistance({ horizon, max_ratio, max_weight, least_support, probability_edges: edges, support, advantage_unit }, actions) {
  need(isWhole(horizon, 1), "horizon must be a whole number above 0");
  need(isLimit(max_ratio), 'max_ratio must be a number, at least 1, or "inf"');
  need(isLimit(max_weight) && max_weight !== 1, 'max_weight must be a number above 1, or "inf"');
  need(isShare(least_support) && least_support > 0, "least_support must be a number in (0, 1]");
  if (actions === null) return;
  const rising = isList(edges, (x) => isNumber(x)) && edges.every((x, i) => i === 0 || edges[i - 1] < x);
  need(rising, "probability_edges must hold rising numbers");
  const cells = (edges.length + 1) * actions ** 2;
  need(isList(support, isShare, cells), `support must hold ${cells} numbers in [0, 1]`);
  need(isNumber(advantage_unit, 0, Number.MAX_VALUE), "advantage_unit must be a finite number, at least 0");
}

function isRule(rule, names, actions) {
  const isCondition = (one) => isObject(one) && names.includes(one.column) && (
    ["known", "missing"].includes(one.test) || one.test === "in" && isList(one.values, (value) => isWhole(value, 0))
    || ["<", "<=", ">", ">="].includes(one.test) && isNumber(one.bound, -Number.MAX_VALUE, Number.MAX_VALUE));
  const isActions = (list) => isList(list, (action) => isWhole(action, 0, actions));
  return isObject(rule) && isText(rule.text) && isList(rule.if, isCondition)
    && isList(rule.allowed, isActions) && [1, 1 + actions].includes(rule.allowed.length);
}
