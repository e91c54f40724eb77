// Runs the public suite http-tests/cache-tests through one Levada node and counts by group.
//
//     node run.mjs CHECKOUT LEVADA [--only=ID] [--json=FILE] [--base=URL] [--checks]
//
// The suite's own server is the origin, its own client asks; this script starts both around a node with
// a plain configuration, and reads the outcome. With --base, another cache that already stands before
// an origin on port 8000 is asked instead. See README.md.

import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'

const [checkout, levada] = process.argv.slice(2).filter((word) => !word.startsWith('--'))
const option = (name) => process.argv.find((word) => word.startsWith(`--${name}=`))?.slice(name.length + 3)
if (!checkout || (!levada && !option('base'))) {
  console.error('usage: node run.mjs CHECKOUT LEVADA [--only=ID] [--json=FILE] [--base=URL] [--checks]')
  process.exit(2)
}
const part = (path) => import(pathToFileURL(resolve(checkout, path)))
const { default: groups } = await part('tests/index.mjs')
const { runTests, getResults } = await part('test-engine/client/runner.mjs')
const { determineTestResult, resultTypes } = await part('test-engine/lib/results.mjs')

const scratch = mkdtempSync(join(tmpdir(), 'cache-tests-'))
const children = []
try {
  const base = option('base') ?? await startBoth()
  await runTests(selected(option('only')), false, base)
  report(getResults())
} finally {
  for (const child of children) child.kill()
  rmSync(scratch, { recursive: true })
}
process.exit()

/** The suite's server and a node before it; the node's address. */
async function startBoth () {
  const [origin, front] = [await freePort(), await freePort()]
  start('node', ['test-engine/server/server.mjs'], {
    cwd: checkout,
    env: {
      ...process.env,
      npm_config_protocol: 'http',
      npm_config_port: String(origin),
      npm_config_pidfile: join(scratch, 'origin.pid')
    }
  })
  const file = join(scratch, 'levada.toml')
  writeFileSync(file, `name = "suite"
[[listen]]
address = "127.0.0.1:${front}"
[[site]]
hosts = ["*"]
origin = "http://127.0.0.1:${origin}"
# Fields of the suite's own, such as Req-Num, are to reach its server.
fetch_fields = ["*"]
[log]
access = "off"
`)
  start(levada, ['run', '--config', file], {})
  await Promise.all([origin, front].map(answering))
  return `http://127.0.0.1:${front}`
}

function start (program, words, more) {
  // What the origin prints of every request is of use for a single test only.
  const stdout = option('only') ? 'inherit' : 'ignore'
  children.push(spawn(program, words, { stdio: ['ignore', stdout, 'inherit'], ...more }))
}

function freePort () {
  return new Promise((resolve) => {
    const server = createServer()
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address()
      server.close(() => resolve(port))
    })
  })
}

async function answering (port) {
  for (let tries = 0; tries < 100; tries++) {
    const answered = await fetch(`http://127.0.0.1:${port}/`).then(() => true, () => false)
    if (answered) return
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  throw new Error(`nothing answers on port ${port}`)
}

/** All groups, or one test with those that it depends on, its exchanges shown. */
function selected (only) {
  if (!only) return groups
  const all = groups.flatMap((group) => group.tests)
  const named = new Set()
  const add = (id) => {
    if (named.has(id)) return
    named.add(id)
    all.find((test) => test.id === id)?.depends_on?.forEach(add)
  }
  add(only)
  return groups.map((group) => ({
    ...group,
    tests: group.tests.filter((test) => named.has(test.id)).map((test) => ({ ...test, dump: test.id === only }))
  }))
}

/** Counts by group, then every test that did not pass, with the reason. */
function report (results) {
  const kinds = ['required', 'optimal', 'check']
  const empty = () => Object.fromEntries(kinds.map((kind) => [kind, [0, 0]]))
  const sum = empty()
  const left = []
  const line = (counts) => kinds.map((kind) => `${counts[kind][0]}/${counts[kind][1]}`.padStart(10)).join('')
  console.log(' '.repeat(24) + kinds.map((kind) => kind.padStart(10)).join(''))
  for (const group of groups) {
    const counts = empty()
    for (const test of group.tests) {
      if (!(test.id in results) || test.browser_only) continue
      const kind = test.kind ?? 'required'
      const result = determineTestResult(groups, test.id, results)
      const passed = result === resultTypes.pass || result === resultTypes.yes
      for (const tally of [counts, sum]) {
        tally[kind][0] += passed ? 1 : 0
        tally[kind][1] += 1
      }
      if (!passed) left.push({ kind, group: group.id, test, result })
    }
    if (kinds.some((kind) => counts[kind][1])) console.log(group.id.padEnd(24) + line(counts))
  }
  console.log('all'.padEnd(24) + line(sum))
  const shown = process.argv.includes('--checks') ? kinds : kinds.slice(0, 2)
  for (const kind of shown) {
    const failures = left.filter((failure) => failure.kind === kind)
    if (failures.length) console.log(`\n${kind}, not passed:`)
    for (const { test, result } of failures) {
      const name = Object.entries(resultTypes).find(([, type]) => type === result)[0]
      const why = name === 'dependency_fail' ? `depends on ${test.depends_on.join(', ')}` : results[test.id][1]
      console.log(`  ${test.id} (${name}): ${why}`)
    }
  }
  const file = option('json')
  if (file) writeFileSync(file, JSON.stringify(results, null, 2) + '\n')
}
