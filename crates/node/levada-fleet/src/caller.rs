//! The one who asks over HTTP: by a token of the fleet, or by one that is bound to sites.
//!
//! A token of the fleet has the fleet's key, and its owner can ask the state directly. A bound one, `ID.SECRET`, has
//! no key and opens nothing: only who serves the API, and nodes for purges, accept it.

use crate::{
    access::{Refusal, judge},
    model::{Role, TokenRecord, keys},
    state::{State, read},
    store::StoreError,
    token::Token,
};

/// The owner of a token.
pub struct Caller {
    /// The rights.
    pub role: Role,
    /// The sites that the token is bound to; none for one that is not bound.
    pub sites: Vec<String>,
    /// The state, in which orders are noted under this token.
    pub state: State,
}

/// Why a caller is not served.
#[derive(Debug, thiserror::Error)]
pub enum CallerError {
    /// The token opens nothing here, in words.
    #[error("{0}")]
    Refused(String),
    /// The state does not answer.
    #[error(transparent)]
    Store(StoreError),
}

impl Caller {
    /// The owner of the token `text`, for a process that has the token `own` of an administrator and its state.
    ///
    /// # Errors
    /// If the token cannot be used, or the state does not answer.
    pub async fn find(own: &Token, state: &State, text: &str) -> Result<Self, CallerError> {
        if let Ok(token) = text.parse::<Token>() {
            if !token.is_of_fleet(own) {
                return Err(CallerError::Refused("the token is of another fleet".to_owned()));
            }
            // Its own place is not asked: it may be anything.
            let token = token.placed_as(own);
            let state = State::open(&token).map_err(CallerError::Store)?;
            let record = record(&state, &token.id).await?;
            let record = record.ok_or_else(|| refused(Refusal::Unknown(token.id)))?;
            return Ok(Self { role: record.role, sites: record.sites, state });
        }
        let Some((id, secret)) = text.split_once('.') else {
            let words = "this is no token: levada fleet token makes one".to_owned();
            return Err(CallerError::Refused(words));
        };
        let record = record(state, id).await?.filter(|record| !record.sites.is_empty());
        let role = judge(id, secret, record.as_ref(), state.time()).map_err(refused)?;
        let sites = record.map(|record| record.sites).unwrap_or_default();
        Ok(Self { role, sites, state: state.by_token(id) })
    }
}

fn refused(refusal: Refusal) -> CallerError {
    CallerError::Refused(refusal.to_string())
}

async fn record(state: &State, id: &str) -> Result<Option<TokenRecord>, CallerError> {
    let found = state.get(&format!("{}{id}", keys::TOKENS)).await;
    let found = found.map_err(|error| match error {
        StoreError::Refused(why) => CallerError::Refused(why),
        other => CallerError::Store(other),
    })?;
    found.as_ref().map(read).transpose().map_err(CallerError::Store)
}
