//! The dashboard in a real browser, over a running demo.
//!
//! # Layout
//! - [`chromium`]: the browser, [`tab`]: a page in it
//! - [`demo`]: a running demo and its addresses
//! - [`operator_workflow`]: an operator watches numbers, follows a payment, pauses a rail, resolves and redrives
//! - [`sign_in`]: tokens and scopes in the browser, and the keyboard alone
//! - [`page_layout`]: every page on every screen, light and dark; takes the screenshots in docs/console/

mod chromium;
mod demo;
mod operator_workflow;
mod page_layout;
mod sign_in;
mod tab;
