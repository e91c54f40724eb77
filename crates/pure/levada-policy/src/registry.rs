//! Finds and builds the policies of the list.

use std::collections::BTreeMap;

use crate::{
    Deployment, POLICIES, ParameterError, ParameterValue, Parameters, Policy, PolicyEntry,
};

/// The reason why a policy could not be built from a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// There is no policy of this name.
    #[error("there is no policy `{0}`; `levada policies` lists them")]
    UnknownPolicy(String),
    /// Some parameters are wrong.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Parameters(Vec<ParameterError>),
}

/// The policy of this name.
pub fn find(name: &str) -> Option<&'static PolicyEntry> {
    POLICIES.iter().flat_map(|file| file.iter()).find(|entry| entry.name == name)
}

/// Builds one instance of the policy `name` with the parameters `given`.
///
/// # Errors
/// When there is no such policy, or with all errors in the parameters.
pub fn build(
    name: &str,
    given: &BTreeMap<String, ParameterValue>,
    deployment: &Deployment,
) -> Result<Box<dyn Policy>, BuildError> {
    let entry = find(name).ok_or_else(|| BuildError::UnknownPolicy(name.to_owned()))?;
    let parameters =
        Parameters::check(entry.name, entry.parameters, given).map_err(BuildError::Parameters)?;
    Ok((entry.build)(&parameters, deployment))
}

/// Builds an instance of the policy `name` for each shard of the key space, as many as `deployment`
/// says. They are joined.
///
/// # Errors
/// As for [`build`].
pub fn build_shards(
    name: &str,
    given: &BTreeMap<String, ParameterValue>,
    deployment: &Deployment,
) -> Result<Vec<Box<dyn Policy>>, BuildError> {
    let mut shards = (0..deployment.shards)
        .map(|_| build(name, given, deployment))
        .collect::<Result<Vec<_>, _>>()?;
    if let Some((first, others)) = shards.split_first_mut() {
        others.iter_mut().for_each(|other| other.join(&**first));
    }
    Ok(shards)
}
