//! Requests that no policy is asked about, whatever the policies say: of some resources, and of some users.

use anteroom_engine::{exemptions::Exemptions, incoming::KindName};
use anteroom_policy::Filtered;

use crate::review::Review;

/// The requests that no policy decides on. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exempt(Exemptions);

/// The reason why no policy is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExemptBy {
    /// A resource filter.
    Resource,
    /// The user, or one of the user's groups.
    User,
}

impl ExemptBy {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Resource => "resource",
            Self::User => "user",
        }
    }
}

impl Exempt {
    /// Returns the requests that these exemptions name, which are read anew for each request.
    pub(crate) fn new(exemptions: Exemptions) -> Self {
        Self(exemptions)
    }

    /// Returns the reason why no policy decides on a request, if there is one. `kind` is that of the
    /// resource, also where a subresource is accessed.
    pub(crate) fn by(&self, kind: KindName<'_>, review: &Review<'_>) -> Option<ExemptBy> {
        let rules = self.0.rules();
        let head = &review.head;
        let subject = Filtered {
            group: kind.group,
            version: kind.version,
            kind: kind.kind,
            subresource: &head.sub_resource,
            namespace: &head.namespace,
            name: &head.name,
        };
        if rules.filters.filter(&subject) {
            return Some(ExemptBy::Resource);
        }
        if !rules.exempts_users() {
            return None; // The user is not read in this case.
        }
        let user = review.user()?;
        let is_exempt = rules.exempts_user(&user.username, &user.groups);
        is_exempt.then_some(ExemptBy::User)
    }
}

#[cfg(test)]
mod tests {
    use anteroom_engine::exemptions::ExemptionRules;
    use serde_json::{Value, json};

    use super::*;

    fn exempt(rules: &str, user: &Value) -> Option<ExemptBy> {
        let body = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": { "uid": "u", "operation": "CREATE", "namespace": "shop", "name": "p",
                "kind": { "group": "", "version": "v1", "kind": "Pod" },
                "object": {}, "userInfo": user } });
        let body = body.to_string();
        let review = Review::parse(body.as_bytes()).unwrap();
        let kind = KindName {
            group: "",
            version: "v1",
            kind: "Pod",
        };
        let rules = ExemptionRules::parse(rules).unwrap();
        Exempt::new(Exemptions::new(rules)).by(kind, &review)
    }

    #[test]
    fn users_are_exempt_by_name_or_group() {
        let ann = json!({ "username": "ann", "groups": ["dev"] });
        let by_user = Some(ExemptBy::User);
        assert_eq!(exempt("{}", &ann), None);
        assert_eq!(exempt("excludeUsernames: [ann]", &ann), by_user);
        assert_eq!(exempt("excludeGroups: [dev]", &ann), by_user);
        assert_eq!(exempt("excludeGroups: [ann]", &ann), None);
    }

    /// A request without a readable user is never exempt by its user.
    #[test]
    fn a_request_without_a_readable_user_is_not_exempt() {
        let everybody = "{excludeUsernames: ['?*'], excludeGroups: ['?*']}";
        for user in [
            json!(null),
            json!("ann"),
            json!({ "username": 5 }),
            json!({ "groups": "a" }),
        ] {
            assert_eq!(exempt(everybody, &user), None);
        }
        let unnamed = json!({ "groups": [] });
        assert_eq!(exempt("excludeUsernames: ['?*']", &unnamed), None);
    }

    /// Whoever changes no value of the chart has what a process without a file has.
    #[test]
    fn the_charts_file_has_the_defaults() {
        let manifests = include_str!("../../../deploy/install/default.yaml");
        let manifests = anteroom_functions::yaml::read_all(manifests).unwrap();
        let mut files = manifests.iter().filter_map(|manifest| {
            let is_it = manifest["metadata"]["name"] == "anteroom-exemptions";
            manifest["data"]["exemptions.yaml"]
                .as_str()
                .filter(|_| is_it)
        });
        let file = files.next().unwrap();
        let rules = ExemptionRules::parse(file).unwrap();
        assert_eq!(rules, ExemptionRules::default(), "{file}");
    }

    #[test]
    fn a_filtered_resource_is_exempt_for_every_user() {
        let of = |filters: &str| {
            let rules = format!("resourceFilters: '{filters}'");
            exempt(&rules, &json!({ "username": "ann" }))
        };
        assert_eq!(of("[Pod,shop,p]"), Some(ExemptBy::Resource));
        assert_eq!(of("[Pod,shop,q]"), None);
        assert_eq!(of(""), None);
    }
}
