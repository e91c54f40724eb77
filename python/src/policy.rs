//! Policies for single decisions, as the redirector of a node asks them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use levada_policy::{
    Cluster, Deployment, LoadTable, Node, NodeIndex, POLICIES, Parameter, ParameterValue,
    PickContext, PolicyEntry, RequestOutcome, Setting, build,
};
use levada_types::{Key, Request, Rng, ServiceClass, Timestamp};
use pyo3::{
    exceptions::{PyKeyError, PyValueError},
    prelude::*,
    types::{PyBool, PyFloat, PyInt, PyString},
};
use serde_json::{Value as Json, json};

use crate::scenario::to_json;

/// All policies as JSON, with their parameters.
#[pyfunction]
pub fn policies() -> PyResult<String> {
    let entries = POLICIES.iter().flat_map(|file| file.iter());
    to_json(&entries.map(described).collect::<Vec<_>>())
}

fn described(entry: &PolicyEntry) -> Json {
    let needs: Vec<_> = entry.needs.iter().map(|need| need.as_str()).collect();
    let parameters: Vec<_> = entry.parameters.iter().map(parameter).collect();
    json!({
        "name": entry.name,
        "paper": entry.paper,
        "summary": entry.summary,
        "needs": needs,
        "runs_on_an_edge": entry.runs_on_an_edge(),
        "parameters": parameters,
    })
}

fn parameter(declared: &Parameter) -> Json {
    let default = match declared.default {
        Setting::Integer(value) => json!(value),
        Setting::Number(value) => json!(value),
        Setting::Switch(value) => json!(value),
        text @ (Setting::Duration(_) | Setting::Choice(_) | Setting::Derived(_)) => {
            json!(text.to_string())
        }
    };
    json!({
        "name": declared.name,
        "value": declared.kind.to_string(),
        "default": default,
        "unit": declared.unit,
        "help": declared.help,
    })
}

/// A decision and its reason.
#[pyclass(frozen, get_all, module = "levada")]
pub struct Pick {
    /// The name of the node that serves the request.
    node: String,
    /// The reason, as in logs and metrics.
    reason: &'static str,
    /// The number of nodes that are responsible for the object after this decision.
    set_size: u32,
}

#[pymethods]
impl Pick {
    fn __repr__(&self) -> String {
        let Self { node, reason, set_size } = self;
        format!("Pick(node={node:?}, reason={reason:?}, set_size={set_size})")
    }
}

/// Nodes by number, or by name.
#[derive(FromPyObject)]
enum Nodes {
    Count(u32),
    Names(Vec<String>),
}

/// A number for each node, in their order or by name.
#[derive(FromPyObject)]
enum PerNode<T> {
    List(Vec<T>),
    Named(BTreeMap<String, T>),
}

/// The identity of an object, normally host and path with query.
#[derive(FromPyObject)]
enum Identity {
    Text(String),
    Bytes(Vec<u8>),
}

/// A policy with its nodes and their loads.
#[pyclass(frozen, module = "levada")]
pub struct Policy {
    name: String,
    state: Mutex<Deciding>,
}

struct Deciding {
    policy: Box<dyn levada_policy::Policy>,
    cluster: Cluster,
    rng: Rng,
    now: Timestamp,
}

#[pymethods]
impl Policy {
    /// `redirectors` and `capacity` are those of the deployment, from which some defaults follow.
    #[new]
    #[pyo3(signature = (
        name = "adaptive", nodes = Nodes::Count(8), *, weights = None, distances = None, seed = 0,
        redirectors = 1, capacity = 3072, **parameters
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords of a Python call")]
    fn new(
        name: &str,
        nodes: Nodes,
        weights: Option<PerNode<f64>>,
        distances: Option<PerNode<f64>>,
        seed: u64,
        redirectors: u32,
        capacity: u32,
        parameters: Option<BTreeMap<String, Bound<'_, PyAny>>>,
    ) -> PyResult<Self> {
        let wrong = |what: &str| Err(PyValueError::new_err(what.to_owned()));
        if redirectors == 0 || capacity == 0 {
            return wrong("`redirectors` and `capacity` must be 1 at least");
        }
        let mut nodes: Vec<Node> = match nodes {
            Nodes::Count(count) => (0..count).map(|n| Node::new(&format!("node-{n}"))).collect(),
            Nodes::Names(names) => names.iter().map(|name| Node::new(name)).collect(),
        };
        if nodes.is_empty() {
            return wrong("there must be a node at least");
        }
        for (place, weight) in placed(weights, &nodes)? {
            if !(weight.is_finite() && weight > 0.0) {
                return wrong("weights must be above 0");
            }
            nodes[place].weight = weight;
        }
        for (place, distance) in placed(distances, &nodes)? {
            if !(distance.is_finite() && distance >= 1.0) {
                return wrong("distances must be at least 1, that of the nearest node");
            }
            nodes[place].distance = distance;
        }
        let given = parameters.unwrap_or_default();
        let given = given.into_iter().map(|(key, value)| Ok((key, value_of(&value)?)));
        let given = given.collect::<PyResult<BTreeMap<_, _>>>()?;
        let deployment = Deployment { redirectors, capacity, shards: 1 };
        let policy = build(name, &given, &deployment)
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        let loads = LoadTable::new(nodes.len());
        let cluster = cluster(nodes, loads);
        let state = Deciding { policy, cluster, rng: Rng::new(seed), now: Timestamp::ZERO };
        Ok(Self { name: name.to_owned(), state: Mutex::new(state) })
    }

    /// The policy's name.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// The names of the nodes.
    #[getter]
    fn nodes(&self) -> Vec<String> {
        self.lock().cluster.nodes().iter().map(|node| node.name.to_string()).collect()
    }

    /// The outstanding requests of each node, by name.
    #[getter]
    fn loads(&self) -> BTreeMap<String, u32> {
        let state = self.lock();
        let nodes = (0u32..).zip(state.cluster.nodes());
        nodes.map(|(n, node)| (node.name.to_string(), state.cluster.load(NodeIndex(n)))).collect()
    }

    /// Chooses the node for a request; None exactly if no node is up. The caller counts the request
    /// by `begin` and `end`, or gives the loads.
    #[pyo3(signature = (key, loads = None, *, size = None, service_class = "normal", now = None))]
    fn pick(
        &self,
        key: Identity,
        loads: Option<PerNode<u32>>,
        size: Option<u64>,
        service_class: &str,
        now: Option<f64>,
    ) -> PyResult<Option<Pick>> {
        let request = Request { size, class: class(service_class)?, key: key.key() };
        let mut state = self.lock();
        let state = &mut *state;
        state.pass_time(now)?;
        state.set_loads(loads)?;
        let mut context = PickContext { now: state.now, rng: &mut state.rng };
        let pick = state.policy.pick(&request, &state.cluster, &mut context);
        Ok(pick.map(|pick| Pick {
            node: state.cluster.node(pick.node).name.to_string(),
            reason: pick.reason.as_str(),
            set_size: pick.set_size,
        }))
    }

    /// The nodes that `pick` would consider, in order, and how many of the first ones are
    /// responsible. Changes nothing but the loads.
    #[pyo3(signature = (key, loads = None, *, size = None, service_class = "normal"))]
    fn candidates(
        &self,
        key: Identity,
        loads: Option<PerNode<u32>>,
        size: Option<u64>,
        service_class: &str,
    ) -> PyResult<(Vec<String>, usize)> {
        let request = Request { size, class: class(service_class)?, key: key.key() };
        let state = self.lock();
        state.set_loads(loads)?;
        let candidates = state.policy.candidates(&request, &state.cluster);
        let name = |node: &NodeIndex| state.cluster.node(*node).name.to_string();
        Ok((candidates.order.iter().map(name).collect(), candidates.set_size))
    }

    /// Counts one more outstanding request.
    fn begin(&self, node: &str) -> PyResult<()> {
        let state = self.lock();
        let node = state.find(node)?;
        state.cluster.loads().set(node, state.cluster.load(node).saturating_add(1));
        Ok(())
    }

    /// Counts one outstanding request less.
    fn end(&self, node: &str) -> PyResult<()> {
        let state = self.lock();
        let node = state.find(node)?;
        state.cluster.loads().set(node, state.cluster.load(node).saturating_sub(1));
        Ok(())
    }

    /// Reports how a request ended, in seconds to the first and to the last byte.
    #[pyo3(signature = (node, latency, service_time = None, *, ok = true, now = None))]
    fn observe(
        &self,
        node: &str,
        latency: f64,
        service_time: Option<f64>,
        ok: bool,
        now: Option<f64>,
    ) -> PyResult<()> {
        let mut state = self.lock();
        let state = &mut *state;
        state.pass_time(now)?;
        let node = state.find(node)?;
        let latency = seconds(latency)?;
        let service_time = service_time.map_or(Ok(latency), seconds)?;
        if state.policy.observes() {
            let mut context = PickContext { now: state.now, rng: &mut state.rng };
            let outcome = RequestOutcome { node, latency, service_time, ok };
            state.policy.observe(&outcome, &mut context);
        }
        Ok(())
    }

    /// Sends no more requests to the node.
    fn down(&self, node: &str) -> PyResult<()> {
        self.lock().set_up(node, false)
    }

    /// Sends requests to the node again.
    fn up(&self, node: &str) -> PyResult<()> {
        self.lock().set_up(node, true)
    }

    /// The node has failed and lost its cache.
    fn failed(&self, node: &str) -> PyResult<()> {
        let mut state = self.lock();
        let state = &mut *state;
        state.policy.failed(state.find(node)?, &state.cluster);
        state.set_up(node, false)
    }

    fn __repr__(&self) -> String {
        format!("Policy({:?}, nodes={:?})", self.name, self.nodes())
    }
}

impl Policy {
    fn lock(&self) -> MutexGuard<'_, Deciding> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deciding {
    fn find(&self, name: &str) -> PyResult<NodeIndex> {
        let mut nodes = (0u32..).zip(self.cluster.nodes());
        let found = nodes.find(|(_, node)| &*node.name == name);
        found
            .map(|(place, _)| NodeIndex(place))
            .ok_or_else(|| PyKeyError::new_err(format!("there is no node {name:?}")))
    }

    fn set_loads(&self, loads: Option<PerNode<u32>>) -> PyResult<()> {
        for (place, load) in placed(loads, self.cluster.nodes())? {
            self.cluster.loads().set(NodeIndex(place as u32), load);
        }
        Ok(())
    }

    fn set_up(&mut self, name: &str, up: bool) -> PyResult<()> {
        let place = self.find(name)?.get();
        let mut nodes = self.cluster.nodes().to_vec();
        nodes[place].up = up;
        self.cluster = cluster(nodes, self.cluster.loads().clone());
        Ok(())
    }

    /// Time does not go back.
    fn pass_time(&mut self, now: Option<f64>) -> PyResult<()> {
        let Some(now) = now else { return Ok(()) };
        self.now = self.now.max(Timestamp::ZERO + seconds(now)?);
        Ok(())
    }
}

/// With one redirector its loads are those of all.
fn cluster(nodes: Vec<Node>, loads: Arc<LoadTable>) -> Cluster {
    Cluster::new(nodes, loads.clone()).with_global_loads(loads)
}

/// The places of nodes with their values.
fn placed<T>(values: Option<PerNode<T>>, nodes: &[Node]) -> PyResult<Vec<(usize, T)>> {
    match values {
        None => Ok(Vec::new()),
        Some(PerNode::List(list)) if list.len() == nodes.len() => {
            Ok(list.into_iter().enumerate().collect())
        }
        Some(PerNode::List(list)) => Err(PyValueError::new_err(format!(
            "{} values for {} nodes: give one for each, or a dictionary by name",
            list.len(),
            nodes.len()
        ))),
        Some(PerNode::Named(named)) => named
            .into_iter()
            .map(|(name, value)| {
                let place = nodes.iter().position(|node| *node.name == *name);
                let unknown = || PyKeyError::new_err(format!("there is no node {name:?}"));
                Ok((place.ok_or_else(unknown)?, value))
            })
            .collect(),
    }
}

fn seconds(value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value).map_err(|error| PyValueError::new_err(error.to_string()))
}

fn class(name: &str) -> PyResult<ServiceClass> {
    ServiceClass::ALL.into_iter().find(|class| class.as_str() == name).ok_or_else(|| {
        let known = ServiceClass::ALL.map(ServiceClass::as_str).join(", ");
        PyValueError::new_err(format!("there is no service class {name:?}; there are {known}"))
    })
}

impl Identity {
    fn key(&self) -> Key {
        match self {
            Self::Text(text) => Key::of(text.as_bytes()),
            Self::Bytes(bytes) => Key::of(bytes),
        }
    }
}

/// A parameter's value as in a configuration.
fn value_of(value: &Bound<'_, PyAny>) -> PyResult<ParameterValue> {
    if value.is_instance_of::<PyBool>() {
        return Ok(ParameterValue::Switch(value.extract()?));
    }
    if value.is_instance_of::<PyInt>() {
        return Ok(ParameterValue::Integer(value.extract()?));
    }
    if value.is_instance_of::<PyFloat>() {
        return Ok(ParameterValue::Number(value.extract()?));
    }
    if value.is_instance_of::<PyString>() {
        return Ok(ParameterValue::Text(value.extract()?));
    }
    Err(PyValueError::new_err(format!("{value} is no value of a parameter")))
}
