//! `validate.podSecurity`.

use anteroom_functions::pod_security::{
    Exclusion, Level, PodSecurity, Version, controls, has_containers,
};

use super::fields::{Field, KnownFields};
use crate::ir::problem::Problems;

const POD_SECURITY: KnownFields = KnownFields {
    evaluated: &["exclude", "level", "version"],
    inert: &[],
    later: &[],
};

const POD_SECURITY_EXCLUSION: KnownFields = KnownFields {
    evaluated: &["controlName", "images", "restrictedField", "values"],
    inert: &[],
    later: &[],
};

/// Exclusions of one rule, or of one exception.
const EXCLUSIONS_MAX: usize = 256;

pub(super) fn compile(field: &Field<'_>, problems: &mut Problems) -> Option<PodSecurity> {
    let security = field.object(&POD_SECURITY, problems)?;
    let level = security
        .required("level", problems)
        .and_then(|level| Level::parse(level.known_text(Level::NAMES, problems)?));
    let version = match security.get("version") {
        None => Some(Version(None)),
        Some(field) => version(&field, problems),
    };
    let exclude = security.get("exclude");
    let exclusions = exclude.map_or(Some(Vec::new()), |field| exclusions(&field, problems));
    Some(PodSecurity {
        level: level?,
        version: version?,
        exclusions: exclusions?,
    })
}

/// Compiles the controls that are left out.
pub(super) fn exclusions(field: &Field<'_>, problems: &mut Problems) -> Option<Vec<Exclusion>> {
    let fields = field.list(problems);
    if fields.len() > EXCLUSIONS_MAX {
        let message = format!("more than {EXCLUSIONS_MAX} of them");
        problems.invalid(field.path(), message);
    }
    let fields = fields.iter().take(EXCLUSIONS_MAX);
    // All of them, for all their problems.
    let exclusions: Vec<_> = fields.map(|field| exclusion(field, problems)).collect();
    exclusions.into_iter().collect()
}

fn version(field: &Field<'_>, problems: &mut Problems) -> Option<Version> {
    let text = field.text(problems)?;
    let version = Version::parse(text);
    if version.is_none() {
        let message = format!("`{text}` is neither `latest` nor a version as in `v1.29`");
        problems.invalid(field.path(), message);
    }
    version
}

fn exclusion(field: &Field<'_>, problems: &mut Problems) -> Option<Exclusion> {
    let exclusion = field.object(&POD_SECURITY_EXCLUSION, problems)?;
    let known: Vec<_> = controls().collect();
    let control = exclusion
        .required("controlName", problems)
        .and_then(|control| control.known_text(&known, problems));
    let mut texts = |name| {
        let listed = exclusion.get(name);
        listed.map_or_else(Vec::new, |listed| {
            let texts = listed.list(problems);
            let texts = texts.iter().filter_map(|text| text.text(problems));
            texts.map(str::to_owned).collect()
        })
    };
    let (images, values): (Vec<String>, Vec<String>) = (texts("images"), texts("values"));
    if let Some(control) = control
        && !images.is_empty()
        && !has_containers(control)
    {
        let message = format!("the control `{control}` is not about containers");
        problems.invalid(exclusion.child("images"), message);
    }
    let field = exclusion
        .get("restrictedField")
        .and_then(|field| field.text(problems));
    Some(Exclusion {
        control: control?.to_owned(),
        images,
        field: field.filter(|field| !field.is_empty()).map(str::to_owned),
        values,
    })
}
