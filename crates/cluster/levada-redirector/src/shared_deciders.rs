//! The deciders of the sites that choose among the nodes of a cluster: sites of one policy share one for the nodes of a
//! region, if all that it knows belongs to objects.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use levada_policy::BuildError;

use crate::{DeciderDeployment, PolicyChoice, PreparedDecider, SharedDecider};

/// The deciders that sites have so far, when all sites of a node are made.
pub struct SharedDeciders<'a> {
    /// By the region, and the text of the choice: parameters have no order.
    prepared: HashMap<String, PreparedDecider>,
    /// The deciders of the former sites, by the same.
    former: HashMap<String, &'a SharedDecider>,
}

impl<'a> SharedDeciders<'a> {
    /// None yet; `former` are those of the former sites, each with the region whose nodes it chooses from.
    pub fn new(former: impl Iterator<Item = (&'a str, &'a SharedDecider)>) -> Self {
        let mut met = HashSet::new();
        let distinct = former.filter(|(_, decider)| met.insert(Arc::as_ptr(decider)));
        let former = distinct.map(|(region, one)| (text(region, one.choice()), one)).collect();
        Self { prepared: HashMap::new(), former }
    }

    /// The decider of a site for the nodes of a region; `""` is that of this node. It takes over the state of `before`, the site's former one, or of the former one that
    /// other sites shared, if that has the same choice.
    ///
    /// # Errors
    /// When the policy does not exist or its parameters are wrong. Nothing has changed then.
    pub fn prepare(
        &mut self,
        (region, choice): (&str, &PolicyChoice),
        deployment: &DeciderDeployment,
        before: Option<&SharedDecider>,
    ) -> Result<PreparedDecider, BuildError> {
        let key = text(region, choice);
        if let Some(shared) = self.prepared.get(&key).and_then(PreparedDecider::for_another_site) {
            return Ok(shared);
        }
        let shared = self.former.get(&key).copied().filter(|decider| decider.is_per_object());
        let prepared = PreparedDecider::new(choice, deployment, shared.or(before))?;
        if let Some(shared) = prepared.for_another_site() {
            self.prepared.insert(key, shared);
        }
        Ok(prepared)
    }
}

fn text(region: &str, choice: &PolicyChoice) -> String {
    format!("{region:?} {choice:?}")
}

#[cfg(test)]
mod tests {
    use levada_policy::ParameterValue;

    use super::*;

    fn choice(name: &str, parameter: &str, value: i64) -> PolicyChoice {
        let parameters = [(parameter.to_owned(), ParameterValue::Integer(value))].into();
        PolicyChoice { name: name.to_owned(), parameters }
    }

    fn deciders<'a>(former: &'a [&'a SharedDecider]) -> SharedDeciders<'a> {
        SharedDeciders::new(former.iter().map(|one| ("", *one)))
    }

    const ONE: DeciderDeployment = DeciderDeployment { redirectors: 1, capacity: 100, seed: 1 };

    #[test]
    fn sites_share_the_objects_of_a_policy_but_not_its_turns() {
        let (fdr, hrw) = (choice("fdr", "slots", 1_000), choice("hrw", "order_cache", 10));
        let lard = choice("lard", "targets", 1_000);
        let turns = PolicyChoice { name: "round_robin".to_owned(), parameters: [].into() };
        let mut deciders = deciders(&[]);
        let mut of =
            |choice| deciders.prepare(("", choice), &ONE, None).expect("it exists").commit();
        for per_object in [&fdr, &hrw, &lard] {
            assert!(Arc::ptr_eq(&of(per_object), &of(per_object)));
        }
        assert!(!Arc::ptr_eq(&of(&turns), &of(&turns)));
        let mut of_region =
            |region| deciders.prepare((region, &fdr), &ONE, None).expect("it exists").commit();
        assert!(Arc::ptr_eq(&of_region("us"), &of_region("us")));
        assert!(!Arc::ptr_eq(&of_region("us"), &of_region("")), "they have other nodes");
    }

    #[test]
    fn new_site_before_all_others_gets_what_they_have_learned() {
        let fdr = choice("fdr", "slots", 1_000);
        let old = deciders(&[]).prepare(("", &fdr), &ONE, None).expect("it exists").commit();
        let former = [&old];
        let mut deciders = deciders(&former);
        let first = deciders.prepare(("", &fdr), &ONE, None).expect("it exists").commit();
        let second = deciders.prepare(("", &fdr), &ONE, Some(&old)).expect("it exists").commit();
        assert!(Arc::ptr_eq(&first, &old) && Arc::ptr_eq(&second, &old));
    }
}
