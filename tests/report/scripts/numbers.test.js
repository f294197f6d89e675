import assert from "node:assert/strict";
import { test } from "node:test";
import { show } from "../../../src/fedssca/report/static/numbers.js";
import { linearScale, logScale, range } from "../../../src/fedssca/report/static/scale.js";

test("numbers have four digits, small and large ones an exponent", () => {
  assert.equal(show(0.123456), "0.1235");
  assert.equal(show(12), "12");
  assert.equal(show(0), "0");
  assert.equal(show(-1234.56), "-1235");
  assert.equal(show(0.00012345), "1.23e-4");
  assert.equal(show(2e6), "2e6");
});

test("units are those that people read", () => {
  assert.equal(show(0.98765, "percent"), "98.77%");
  assert.equal(show(0.5, "percent", 3), "50%");
  assert.equal(show(1234567, "bytes"), "1.23 MB");
  assert.equal(show(999, "bytes"), "999 B");
  assert.equal(show(90, "seconds"), "90 s");
  assert.equal(show(600, "seconds"), "10 min");
  assert.equal(show(7200, "seconds"), "2 h");
  assert.equal(show(1234567, "count"), "1,234,567");
});

test("what is no number is a dash", () => {
  for (const value of [null, undefined, Number.NaN, Number.POSITIVE_INFINITY, "7"])
    assert.equal(show(value), "–");
});

test("a linear scale maps both ways and has round ticks", () => {
  const scale = linearScale(0, 10, 100, 200);
  assert.equal(scale.at(5), 150);
  assert.equal(scale.back(150), 5);
  assert.deepEqual(scale.ticks(5), [0, 2, 4, 6, 8, 10]);
  assert.deepEqual(linearScale(0, 0.3, 0, 1).ticks(3), [0, 0.1, 0.2, 0.3]);
  assert.equal(linearScale(3, 3, 0, 10).at(3), 0);
});

test("a logarithmic scale maps both ways and has ticks at powers of ten", () => {
  const scale = logScale(1, 1000, 0, 300);
  assert.ok(Math.abs(scale.at(10) - 100) < 1e-9);
  assert.ok(Math.abs(scale.back(200) - 100) < 1e-9);
  assert.deepEqual(scale.ticks(5), [1, 3, 10, 30, 100, 300, 1000]);
  assert.deepEqual(logScale(1e-8, 1e8, 0, 1).ticks(4), [1e-8, 1e-4, 1, 1e4, 1e8]);
  assert.ok(scale.at(0) < 0);
});

test("a range has a margin, and does not pass zero without need", () => {
  assert.deepEqual(range([], false), [0, 1]);
  assert.deepEqual(range([0, 100], false), [0, 106]);
  assert.deepEqual(range([-100, 100], false), [-112, 112]);
  assert.deepEqual(range([5, 5], false), [4.5, 5.5]);
  assert.deepEqual(range([4, 4], true), [2, 8]);
});
