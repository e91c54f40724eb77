//! The account at the server: made once, kept on disk, made again when it is lost. A fleet has one for all its nodes.

use instant_acme::{Account, AccountCredentials, ExternalAccountKey, NewAccount};

use crate::acme::{
    AcmeSettings,
    client::{AcmeClient, ServerSays},
    failure::OrderFailure,
    shared::Shared,
    storage::Storage,
};

/// The account of these settings.
pub(crate) async fn open(
    settings: &AcmeSettings,
    (storage, shared): (&Storage, &Shared),
    client: AcmeClient,
    says: &ServerSays,
) -> Result<Account, OrderFailure> {
    let opened = async |credentials, client| {
        let builder = Account::builder_with_http(Box::new(client));
        let opened = builder.from_credentials(credentials).await;
        opened.map_err(|error| failed("directory", &error, settings, says))
    };
    agree(settings, (storage, shared)).await?;
    let turn = match stored(settings, storage)? {
        Some(credentials) => return opened(credentials, client).await,
        None => shared.account_turn(&settings.directory).await,
    };
    // Another node may have made one meanwhile.
    if turn.is_some()
        && agree(settings, (storage, shared)).await?
        && let Some(credentials) = stored(settings, storage)?
    {
        return opened(credentials, client).await;
    }
    storage.check()?;
    let contact = settings.email.as_ref().map(|email| format!("mailto:{email}"));
    let contact: Vec<_> = contact.as_deref().into_iter().collect();
    let account = NewAccount {
        contact: &contact,
        terms_of_service_agreed: true,
        only_return_existing: false,
    };
    let external = settings.external_account.as_ref();
    let external = external.map(|own| ExternalAccountKey::new(own.id.clone(), &own.key));
    let builder = Account::builder_with_http(Box::new(client.clone()));
    let made = builder.create(&account, settings.directory.clone(), external.as_ref()).await;
    let (account, credentials) =
        made.map_err(|error| failed("new account", &error, settings, says))?;
    let text = serde_json::to_string(&credentials)
        .map_err(|error| OrderFailure::Refused(error.to_string()))?;
    storage.store_account(&settings.directory, &text)?;
    tracing::info!(account = account.id(), directory = settings.directory, "account made");
    if agree(settings, (storage, shared)).await?
        && let Some(credentials) = stored(settings, storage)?
    {
        return opened(credentials, client).await;
    }
    Ok(account)
}

/// Makes the account on disk that of the fleet, or the other way round if the fleet has none. Returns whether the disk
/// has got another one.
async fn agree(
    settings: &AcmeSettings,
    (storage, shared): (&Storage, &Shared),
) -> Result<bool, OrderFailure> {
    // One that cannot be read is set aside below.
    let own = storage.account(&settings.directory).ok().flatten();
    let own = own.filter(|text| serde_json::from_str::<AccountCredentials>(text).is_ok());
    let agreed = match shared.account(&settings.directory, own.as_deref()).await {
        Ok(agreed) => agreed,
        Err(why) if own.is_some() => {
            tracing::info!(why, "the account on disk is used");
            return Ok(false);
        }
        Err(why) => {
            let why = format!("the account is in the state of the fleet: {why}");
            return Err(OrderFailure::Unreachable(why));
        }
    };
    match agreed {
        Some(agreed) if own.as_ref() != Some(&agreed) => {
            storage.store_account(&settings.directory, &agreed)?;
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// The account on disk. One that cannot be used is set aside: the server gives another one for a new key.
fn stored(
    settings: &AcmeSettings,
    storage: &Storage,
) -> Result<Option<AccountCredentials>, OrderFailure> {
    let why = match storage.account(&settings.directory) {
        Ok(None) => return Ok(None),
        Ok(Some(text)) => match serde_json::from_str(&text) {
            Ok(credentials) => return Ok(Some(credentials)),
            Err(error) => format!(
                "{} is damaged: {error}",
                storage.account_path(&settings.directory).display()
            ),
        },
        Err(error) => error.to_string(),
    };
    set_aside(settings, storage, &why)?;
    Ok(None)
}

/// Sets an account aside, so that the next order makes another one.
pub(crate) fn set_aside(
    settings: &AcmeSettings,
    storage: &Storage,
    why: &str,
) -> Result<(), OrderFailure> {
    let kept = storage.set_account_aside(&settings.directory)?;
    tracing::error!(why, kept = %kept.display(), "the account key is lost, another account is made");
    Ok(())
}

fn failed(
    step: &str,
    error: &instant_acme::Error,
    settings: &AcmeSettings,
    says: &ServerSays,
) -> OrderFailure {
    let retry_at = says.retry_at();
    match OrderFailure::of(step, error, retry_at) {
        OrderFailure::Refused(why) if why.contains("externalAccountRequired") => {
            let remedy =
                "add [acme.external_account] with the id and key that the authority gave you";
            OrderFailure::Refused(format!("{why}; {remedy}"))
        }
        OrderFailure::Unreachable(why) => {
            OrderFailure::Unreachable(format!("{}: {why}", settings.directory))
        }
        other => other,
    }
}
