//! Both sets of policies in one scenario: the objects and the facts are the same for both.

use std::mem::swap;

use anteroom_policy::Operation;

use super::{Example, outcome::Outcome, request::Request, vocabulary::Vocabulary};
use crate::{
    loaded_policy::LoadedPolicy,
    request::User,
    scenario::{Scenario, apply},
};

/// The groups of every user.
const EVERYBODY: &str = "system:authenticated";

/// The group that may do anything.
const MASTERS: &str = "system:masters";

/// Two sets of policies, and what they decide from.
pub(super) struct ComparedPolicies {
    scenario: Scenario,
    sides: [Vec<LoadedPolicy>; 2],
    /// Two users, with the names of those that are not known from a file.
    users: [(User, Option<String>); 2],
}

impl ComparedPolicies {
    pub(super) fn new(
        mut scenario: Scenario,
        sides: [Vec<LoadedPolicy>; 2],
        of: &Vocabulary,
    ) -> Self {
        let plain = User::named("somebody", &[EVERYBODY.to_owned()], &[]);
        let first = match scenario.user.is_known() {
            true => scenario.user.clone(),
            false => plain,
        };
        // The second user has a name and all groups and roles that the rules mention.
        let name = of.users.iter().find(|name| !name.contains(['*', '?']));
        let name = name.map_or("admin", String::as_str);
        let named = of.groups_of_users.iter().cloned();
        let groups: Vec<_> = [EVERYBODY, MASTERS]
            .map(str::to_owned)
            .into_iter()
            .chain(named)
            .collect();
        let mut roles: Vec<_> = of.roles.iter().cloned().collect();
        roles.push("cluster-admin".to_owned());
        let second = User::named(name, &groups, &roles);
        scenario.policies = Vec::new();
        Self {
            scenario,
            sides,
            users: [(first, None), (second, Some(name.to_owned()))],
        }
    }

    pub(super) fn users(&self) -> usize {
        self.users.len()
    }

    /// Returns the outcomes of a request; `None` where it is about no object at all.
    pub(super) fn outcomes(&mut self, request: &Request) -> Option<[Outcome; 2]> {
        self.scenario.resources = vec![request.resource()?];
        self.scenario.operation = Some(request.operation);
        self.scenario.old.clone_from(&request.old);
        let (user, _) = self.users.get(request.user)?;
        self.scenario.user = user.clone();
        let scenario = &mut self.scenario;
        Some(self.sides.each_mut().map(|side| {
            swap(&mut scenario.policies, side);
            let outcome = Outcome::of(scenario, &apply(scenario));
            swap(&mut scenario.policies, side);
            outcome
        }))
    }

    pub(super) fn example(&mut self, request: Request) -> Option<Example> {
        let [old, new] = self.outcomes(&request)?;
        let resource = request.resource()?;
        let before = request
            .old
            .filter(|old| request.operation == Operation::Update && *old != request.object);
        Some(Example {
            operation: request.operation.as_str(),
            user: self
                .users
                .get(request.user)
                .and_then(|(_, name)| name.clone()),
            resource: resource.title(),
            made_from: request.seed,
            changes: request.changes,
            object: request.object,
            old_object: before,
            old,
            new,
        })
    }
}
