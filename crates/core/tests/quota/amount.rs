//! Quantities as the API server reads them.

use holdfast_core::quota::amount::{AmountError, LARGEST, bytes, clamp, limit, same, things, units};
use proptest::prelude::*;

#[test]
fn case_real_14_a_tenth_of_a_gibibyte_1500m_and_a_negative_limit_are_refused() {
    assert!(matches!(limit("0.1Gi"), Err(AmountError::Fraction(_))));
    assert!(matches!(limit("1500m"), Err(AmountError::Fraction(_))));
    assert!(matches!(limit("3.5"), Err(AmountError::Fraction(_))));
    assert!(matches!(limit("-1Gi"), Err(AmountError::Negative(_))));
    assert!(matches!(limit("-1"), Err(AmountError::Negative(_))));
}

#[test]
fn case_real_15_a_count_of_2_point_0_is_2_and_one_of_2_point_5_is_refused() {
    assert_eq!(limit("2.0"), Ok(2));
    assert!(matches!(limit("2.5"), Err(AmountError::Fraction(_))));
}

#[test]
fn case_real_21_1gi_and_1073741824_are_the_same_and_no_reason_to_write() {
    assert!(same("1Gi", "1073741824"));
    assert!(same("1.5Gi", "1536Mi"));
    assert!(same("1k", "1000"));
    assert!(same("1e3", "1000"));
    assert!(same("1E3", "1k"));
    assert!(!same("1G", "1Gi"));
    assert!(!same("x", "x"), "what is no quantity equals nothing");
}

#[test]
fn limits_that_the_api_server_accepts_are_read() {
    for (text, value) in [
        ("0", 0),
        ("10Gi", 10 << 30),
        ("1.5Gi", 3 << 29),
        ("500M", 500_000_000),
        ("1e9", 1_000_000_000),
        ("1P", 1_000_000_000_000_000),
        ("8Pi", LARGEST),
        ("+5", 5),
        (".5Ki", 512),
        ("5.", 5),
        ("1000m", 1),
        ("2000000u", 2),
    ] {
        assert_eq!(limit(text), Ok(value), "{text}");
    }
}

#[test]
fn above_about_8_pebibytes_a_quota_refuses_the_value_so_it_is_clamped() {
    for text in [
        "9Pi",
        "10Pi",
        "100Pi",
        "1Ei",
        "99999999999999999999999999999999999999999Ei",
        "1e400",
    ] {
        assert!(matches!(limit(text), Err(AmountError::TooLarge(_))), "{text}");
    }
    assert_eq!(limit("9223372036854775"), Ok(9_223_372_036_854_775));
    assert!(limit("9223372036854776").is_err());
    assert_eq!(clamp(i64::MAX), LARGEST);
    assert_eq!(bytes(clamp(i64::MAX)), "8Pi");
    assert!(limit(&bytes(LARGEST)).is_ok(), "what is published is accepted");
    assert_eq!(clamp(-1), 0);
    assert_eq!(units("99999999999999999999Ei"), Ok(i64::MAX), "saturates");
    assert_eq!(units("-99999999999999999999Ei"), Ok(i64::MIN), "saturates");
}

#[test]
fn fractions_are_rounded_away_from_zero_as_the_api_server_does() {
    for (text, value) in [
        ("1500m", 2),
        ("-1500m", -2),
        ("1n", 1),
        ("-1n", -1),
        ("0.1Gi", 107_374_183),
        ("1e-30", 1),
    ] {
        assert_eq!(units(text), Ok(value), "{text}");
    }
}

#[test]
fn what_is_no_quantity_is_refused_and_named() {
    for text in [
        "", " ", "-", ".", "+.", "1 Gi", "Gi", "1gi", "1K", "1KB", "55.21KB", "55.21K", "1.2.3", "1e",
        "1ee3", "0x10", "1e+-3", "١",
    ] {
        let error = units(text).unwrap_err();
        assert_eq!(error, AmountError::NotAQuantity(text.to_owned()));
    }
    assert!(units("55.21KB").unwrap_err().to_string().contains("55.21KB"));
}

#[test]
fn amounts_are_printed_as_people_write_them() {
    for (value, text) in [
        (0, "0"),
        (1, "1"),
        (1023, "1023"),
        (1024, "1Ki"),
        (1025, "1025"),
        (145 << 20, "145Mi"),
        (3 << 29, "1536Mi"),
    ] {
        assert_eq!(bytes(value), text);
    }
    assert_eq!(things(1000), "1000");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_is_printed_is_read_back(value in any::<i64>()) {
        prop_assert_eq!(units(&bytes(value)), Ok(value));
        prop_assert_eq!(units(&things(value)), Ok(value));
        prop_assert!(same(&bytes(value), &things(value)));
        prop_assert!(limit(&bytes(clamp(value))).is_ok());
    }

    #[test]
    fn no_text_is_too_much(text in "[-+]?[0-9.]{0,40}(e[-+]?[0-9]{0,9}|[KMGTPE]i?|[numk])?") {
        if let Ok(value) = limit(&text) {
            prop_assert!(value >= 0);
            prop_assert_eq!(units(&text), Ok(value));
        }
    }
}
