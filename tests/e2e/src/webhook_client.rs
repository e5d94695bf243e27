//! The certificate that the API server presents to webhooks which ask for one.

use std::{fs, path::Path};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use serde_json::json;

/// The file with the AdmissionConfiguration.
pub(crate) const CONFIGURATION: &str = "admission.json";

/// The file with the authority that signs the certificate.
pub const AUTHORITY: &str = "webhook-client-ca.pem";

/// The name in the certificate.
pub const NAME: &str = "kube-apiserver";

/// Writes the AdmissionConfiguration into the folder, with the files that it names.
pub(crate) fn write(folder: &Path) -> anyhow::Result<()> {
    let authority_key = KeyPair::generate()?;
    let mut authority = named("webhook clients");
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let pem = authority.self_signed(&authority_key)?.pem();
    fs::write(folder.join(AUTHORITY), pem)?;

    let key = KeyPair::generate()?;
    let mut client = named(NAME);
    client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let client = client.signed_by(&key, &Issuer::from_params(&authority, &authority_key))?;
    fs::write(folder.join("webhook-client.pem"), client.pem())?;
    fs::write(folder.join("webhook-client.key"), key.serialize_pem())?;

    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config",
        // For every webhook.
        "users": [{ "name": "*", "user": {
            "client-certificate": folder.join("webhook-client.pem"),
            "client-key": folder.join("webhook-client.key"),
        } }],
    });
    let kubeconfig_file = folder.join("webhook-client.kubeconfig");
    fs::write(&kubeconfig_file, kubeconfig.to_string())?;
    let plugin = |name| {
        json!({ "name": name, "configuration": {
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration",
            "kubeConfigFile": kubeconfig_file,
        } })
    };
    let configuration = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
        "plugins": [plugin("ValidatingAdmissionWebhook"), plugin("MutatingAdmissionWebhook")],
    });
    fs::write(folder.join(CONFIGURATION), configuration.to_string())?;
    Ok(())
}

fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
