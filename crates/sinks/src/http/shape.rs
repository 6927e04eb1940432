//! What a payment request is made of: method, query, headers and body, by the settings of the rail.
//!
//! It adds no credentials and sends nothing. All of it is the same on every attempt.

use std::collections::BTreeMap;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Request, Url};
use serde::Deserialize;
use symphony_relay::rail::{Invalid, Payment};

use super::body::{Body, BodySetting};
use super::credentials;
use super::settings::{HeaderSetting, HeaderTemplate};
use super::template::{Syntax, Template, Variables};
use crate::config::SettingError;

/// The most query parameters and headers from templates.
const MAX_TEMPLATES: usize = 64;

/// The method of a payment request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum PaymentMethod {
    /// Creates a payment.
    #[default]
    Post,
    /// Stores a payment under its address.
    Put,
}

/// The settings that shape a request.
pub(super) struct ShapeSettings<'a> {
    pub(super) method: PaymentMethod,
    pub(super) body: &'a BodySetting,
    pub(super) query: &'a BTreeMap<String, String>,
    pub(super) headers: &'a BTreeMap<String, HeaderSetting>,
}

/// The shape of a rail's requests.
pub(super) struct Shape {
    method: Method,
    body: Body,
    query: Vec<(String, Template)>,
    headers: Vec<(HeaderName, Template)>,
}

impl Shape {
    /// Compiles the templates. `reserved` says which headers are taken.
    pub(super) fn build(
        settings: &ShapeSettings<'_>,
        reserved: impl Fn(&HeaderName) -> bool,
    ) -> Result<Self, SettingError> {
        let mut headers = Vec::new();
        for (name, value) in settings.headers {
            if let HeaderSetting::Template(HeaderTemplate::Template(source)) = value {
                let setting = format!("headers.{name}");
                let header = credentials::header_name(&setting, name, &reserved)?;
                headers.push((header, Template::compile(&setting, source.clone(), Syntax::Text)?));
            }
        }
        let mut query = Vec::new();
        for (name, source) in settings.query {
            let template = Template::compile(&format!("query.{name}"), source.clone(), Syntax::Text)?;
            query.push((name.clone(), template));
        }
        if headers.len() > MAX_TEMPLATES || query.len() > MAX_TEMPLATES {
            return Err(SettingError::new(
                "query",
                format!("and headers have at most {MAX_TEMPLATES} templates each"),
            ));
        }
        let method = match settings.method {
            PaymentMethod::Post => Method::POST,
            PaymentMethod::Put => Method::PUT,
        };
        Ok(Self { method, body: Body::build(settings.body.clone())?, query, headers })
    }

    /// Refuses a payment that the templates cannot be rendered for.
    pub(super) fn check(&self, payment: &Payment) -> Result<(), Invalid> {
        if self.body.is_template() {
            self.body.bytes(payment)?;
        }
        self.add_headers(payment, &mut HeaderMap::new())?;
        self.query(payment).map(drop)
    }

    /// The request of a payment to this URL, without credentials.
    pub(super) fn payment_request(&self, mut url: Url, payment: &Payment) -> Result<Request, Invalid> {
        let pairs = self.query(payment)?;
        if !pairs.is_empty() {
            url.query_pairs_mut().extend_pairs(pairs);
        }
        let body = self.body.bytes(payment)?;
        let mut request = Request::new(self.method.clone(), url);
        self.add_headers(payment, request.headers_mut())?;
        request.headers_mut().insert(CONTENT_TYPE, self.body.content_type());
        *request.body_mut() = Some(body.into());
        Ok(request)
    }

    /// Adds the headers from templates, which inquiries have too.
    pub(super) fn add_headers(&self, payment: &Payment, headers: &mut HeaderMap) -> Result<(), Invalid> {
        if self.headers.is_empty() {
            return Ok(());
        }
        let variables = Variables::of(payment)?;
        for (name, template) in &self.headers {
            let text = template.render(&variables)?;
            // The line of a header ends at a line break, and servers disagree about other control characters.
            let printable = text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
            let value = HeaderValue::from_str(text.trim()).ok().filter(|_| printable).ok_or_else(|| Invalid {
                message: format!("payload does not fit headers.{name}: the value must be printable ASCII"),
            })?;
            headers.insert(name.clone(), value);
        }
        Ok(())
    }

    /// The query parameters from templates, not yet encoded.
    fn query(&self, payment: &Payment) -> Result<Vec<(&str, String)>, Invalid> {
        if self.query.is_empty() {
            return Ok(Vec::new());
        }
        let variables = Variables::of(payment)?;
        self.query.iter().map(|(name, template)| Ok((name.as_str(), template.render(&variables)?))).collect()
    }
}
