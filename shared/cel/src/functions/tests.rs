use serde_json::json;

use crate::{
    CompileError, Names, Program,
    tests::{all_errors, all_true, evaluated},
};

#[test]
fn string_functions_give_their_values() {
    all_true(
        &json!({"s": "tacocat", "e": "éa"}),
        &[
            "object.s.startsWith('taco') && object.s.endsWith('cat') && object.s.contains('oc')",
            "!object.s.startsWith('cat') && !object.s.endsWith('taco') && !object.s.contains('ot')",
            "object.e.charAt(0) == 'é' && object.e.charAt(2) == ''",
            "object.s.indexOf('a') == 1 && object.s.indexOf('a', 2) == 5 && object.s.indexOf('x') == -1",
            "object.s.lastIndexOf('a') == 5 && object.s.lastIndexOf('a', 4) == 1",
            "object.s.lastIndexOf('cat', 4) == 4 && object.s.lastIndexOf('cat', 3) == -1",
            "'éaé'.lastIndexOf('é', 1) == 0 && 'éaé'.lastIndexOf('é') == 2 && 'éaé'.lastIndexOf('aé', 2) == 1",
            // From the end on nothing is found but the empty text.
            "'abc'.indexOf('c', 3) == -1 && 'abc'.indexOf('x', 9) == -1 && 'abc'.indexOf('', 9) == 3",
            "'abc'.lastIndexOf('c', 3) == -1 && 'abc'.lastIndexOf('c', 9) == -1 && 'abc'.lastIndexOf('', 2) == 2",
            "object.e.indexOf('a') == 1 && object.e.indexOf('') == 0 && object.e.lastIndexOf('') == 2",
            "['a', 'b'].join() == 'ab' && ['a', 'b'].join('-') == 'a-b' && [].join('x') == ''",
            "'TéX'.lowerAscii() == 'téx' && 'téx'.upperAscii() == 'TéX' && ' a\\t'.trim() == 'a'",
            "'abab'.replace('b', 'x') == 'axax' && 'abab'.replace('b', 'x', 1) == 'axab'",
            "'ab'.replace('', '-') == '-a-b-' && 'abab'.replace('b', 'x', 0) == 'abab'",
            "'abab'.replace('b', '', -1) == 'aa'",
            "'a,b,c'.split(',') == ['a', 'b', 'c'] && 'a,b,c'.split(',', 2) == ['a', 'b,c']",
            "'a,b'.split(',', 0) == [] && 'a,b'.split(',', 1) == ['a,b'] && 'a,b'.split(',', -1) == ['a', 'b']",
            "'éab'.split('') == ['é', 'a', 'b'] && 'éab'.split('', 2) == ['é', 'ab'] && ''.split(',') == ['']",
            "'tacocat'.substring(4) == 'cat' && 'éab'.substring(1, 2) == 'a' && 'a'.substring(1) == ''",
            "'abc'.reverse() == 'cba' && [1, 2].reverse() == [2, 1]",
            "strings.quote('a\"\\n\\\\') == '\"a\\\\\"\\\\n\\\\\\\\\"'",
            "strings.quote('') == '\"\"'",
            "size('éa') == 2 && size(b'\\xff') == 1 && size({'a': 1}) == 1 && 'é'.size() == 1",
        ],
    );
    all_errors(
        &json!({}),
        &[
            ("'a'.charAt(2) == ''", "index out of range: 2"),
            ("'a'.charAt(-1) == ''", "index out of range: -1"),
            ("'a'.indexOf('a', -1) == 0", "index out of range: -1"),
            ("'a'.lastIndexOf('', -1) == 0", "index out of range: -1"),
            ("'abc'.substring(4) == ''", "index out of range: 4"),
            (
                "'abc'.substring(2, 1) == ''",
                "invalid substring range. start: 2, end: 1",
            ),
            ("'abc'.substring(0, 9) == ''", "index out of range: 9"),
            ("[1].join() == ''", "no such overload: join(list)"),
            (
                "dyn(1).startsWith('a')",
                "no such overload: startsWith(int, string)",
            ),
        ],
    );
}

#[test]
fn format_writes_every_kind_of_value() {
    for (expression, expected) in [
        ("'%s'.format(['a'])", "a"),
        ("'%s %d %%'.format(['a', 3])", "a 3 %"),
        (
            "'%s'.format([[1, 'b', null, true, 1.5]])",
            "[1, \"b\", null, true, 1.500000]",
        ),
        ("'%s'.format([{'b': 1, 'a': [2]}])", "{\"a\":[2], \"b\":1}"),
        (
            "'%s'.format([[b'x', duration('90m'), timestamp(0), double('NaN'), {1: 'a\"'}]])",
            "[b\"x\", duration(\"5400s\"), timestamp(\"1970-01-01T00:00:00Z\"), \"NaN\", {1:\"a\\\"\"}]",
        ),
        (
            "'%f|%.1f|%f'.format([1234567.5, -123.0, -1.0 / 0.0])",
            "1,234,567.500000|-123.0|-∞",
        ),
        (
            "'%s'.format([[1000.5, -0.0, 1.0 / 0.0]])",
            "[1000.500000, -0.000000, \"+Inf\"]",
        ),
        (
            "'%f|%.1f|%e'.format([-0.0, -0.01, -0.0])",
            "0.000000|-0.0|0.000000×10⁰⁰",
        ),
        (
            "'%f|%f|%e'.format(['NaN', 'Infinity', '-Infinity'])",
            "NaN|∞|    -∞",
        ),
        ("'%.16e'.format([1.0])", "   1.000000×10⁰⁰"),
        ("'%.2f|%f'.format([1.005, 2.0])", "1.00|2.000000"),
        (
            "'%.1e %e'.format([1234.5, -0.00012])",
            "1.234500×10⁰³ -1.200000×10⁻⁰⁴",
        ),
        ("'%b %b %o'.format([5, true, 8])", "101 1 10"),
        ("'%x %X %x'.format([255, -255, 'ab'])", "ff -FF 6162"),
        (
            "'%s %s'.format([duration('90m'), timestamp('2024-01-02T03:04:05Z')])",
            "5400s 2024-01-02T03:04:05Z",
        ),
        ("'%s'.format([type(1)])", "int"),
        ("'%f'.format([double('NaN')])", "NaN"),
        ("'%s|%s'.format([1.5, 1.0 / 0.0])", "1.5|+Inf"),
        ("'%d %b %o %x'.format([7u, 5u, 8u, 255u])", "7 101 10 ff"),
        ("'%d %b %o %x'.format([0, 0, 0, 0])", "0 0 0 0"),
        ("string(size('%.100f'.format([1.0])))", "102"),
        ("'plain'.format([])", "plain"),
    ] {
        let source = format!("{expression} == object.expected");
        assert_eq!(
            evaluated(&source, &json!({"expected": expected})),
            Ok(true),
            "{expression}"
        );
    }
    all_errors(
        &json!({}),
        &[
            ("'%d'.format(['a']) == ''", "`%d` is not for a string"),
            ("'%f'.format([1]) == ''", "`%f` is not for a int"),
            ("'%f'.format(['nan']) == ''", "`%f` is not for a string"),
            ("'%s'.format([b'\\xff']) == ''", "invalid UTF-8 in bytes"),
            ("'%s'.format([[b'\\xff']]) == ''", "invalid UTF-8 in bytes"),
            ("'%q'.format(['a']) == ''", "a format has no verb `%q`"),
            (
                "'%s'.format([]) == ''",
                "a format has more verbs than there are values",
            ),
            (
                "'%'.format([1]) == ''",
                "unexpected end of string in a format",
            ),
            (
                "'%.101f'.format([1.0]) == ''",
                "`101` is no precision up to 100",
            ),
        ],
    );
}

#[test]
fn list_and_set_functions_give_their_values() {
    all_true(
        &json!({"list": [3, 1, 2]}),
        &[
            "!object.list.isSorted() && [1, 2, 2].isSorted() && [].isSorted() && ['a', 'b'].isSorted()",
            "object.list.sum() == 6 && [].sum() == 0 && [1.5, 1.5].sum() == 3.0",
            "[duration('1s'), duration('2s')].sum() == duration('3s') && [1u, 2u].sum() == 3u",
            "object.list.min() == 1 && object.list.max() == 3 && ['b', 'a'].min() == 'a'",
            "object.list.indexOf(2) == 2 && object.list.indexOf(9) == -1",
            "[1, 2, 1].lastIndexOf(1) == 2 && [1, 2, 1].indexOf(1) == 0",
            "[1, 2, 1.0].distinct() == [1, 2] && [[1], [2, [3]]].flatten() == [1, 2, [3]]",
            "[[1, [2, [3]]]].flatten(9) == [1, 2, 3] && [[1]].flatten(0) == [[1]]",
            "[1, 2, 3].slice(1, 3) == [2, 3] && [1].slice(1, 1) == [] && [1, 2, 3, 4].slice(1, 2) == [2]",
            "object.list.sort() == [1, 2, 3] && [].sort() == [] && [true, false].sort() == [false, true]",
            // Elements of different types are in any order.
            "[1, 'a', 0].isSorted() && ![2, 1.5].isSorted() && [1.5, 2].min() == 1.5",
            "sets.contains([1, 2, 3], [2, 3.0]) && !sets.contains([1], [2]) && sets.contains([], [])",
            "sets.equivalent([1, 1, 2], [2, 1]) && !sets.equivalent([1], [1, 2])",
            "sets.intersects([1, 2], [2, 3]) && !sets.intersects([], [1])",
        ],
    );
    all_errors(
        &json!({"mixed": [1, "a"], "numbers": [1.5, 2]}),
        &[
            (
                "object.numbers.sort() == []",
                "no such overload: sort(int, double)",
            ),
            (
                "[1, 2].sortBy(x, x == 1 ? 1 : 1.5) == []",
                "no such overload: sortBy(double, int)",
            ),
            ("[{}].sort() == []", "no such overload: sort(map, map)"),
            (
                "[null].isSorted()",
                "no such overload: isSorted(null_type, null_type)",
            ),
            ("[].min() == 0", "min called on empty list"),
            (
                "object.mixed.max() == 1",
                "no such overload: max(string, int)",
            ),
            ("object.mixed.sum() == 1", "no such overload: sum(list)"),
            (
                "object.mixed.sort() == []",
                "no such overload: sort(string, int)",
            ),
            ("[9223372036854775807, 1].sum() == 0", "integer overflow"),
            ("[1].slice(0, 2) == []", "cannot slice(0, 2) of 1 elements"),
            (
                "[1].slice(1, 0) == []",
                "cannot slice(1, 0): the start is behind the end",
            ),
        ],
    );
}

#[test]
fn quantity_functions_give_their_values() {
    all_true(
        &json!({"memory": "1.5Gi", "cpu": "100m"}),
        &[
            "quantity(object.memory).isGreaterThan(quantity('1G')) && quantity('1Ki') == quantity('1024')",
            "quantity(object.cpu).isLessThan(quantity('1')) && quantity('1').compareTo(quantity('1000m')) == 0",
            "quantity('1').compareTo(quantity('2')) == -1 && quantity('-1').sign() == -1 && quantity('0').sign() == 0",
            "sign(quantity('-1')) == -1 && sign(quantity('0')) == 0 && sign(quantity('1m')) == 1",
            "quantity('50k').add(20).asInteger() == 50020 && quantity('50k').sub(quantity('50k')).sign() == 0",
            "quantity('50k').add(quantity('1')) == quantity('50001') && quantity('5').sub(7).asInteger() == -2",
            "!quantity('2000m').isInteger() && !quantity('1.0').isInteger() && quantity('1.5k').asInteger() == 1500",
            "quantity('5').isInteger() && !quantity('50m').isInteger() && quantity('2e3').asInteger() == 2000",
            "quantity('1.5').asApproximateFloat() == 1.5 && quantity('0.1n') == quantity('1n')",
            "isQuantity('10') && isQuantity('-1.5Mi') && isQuantity('.5') && isQuantity('1E') && isQuantity('1e3')",
            "!isQuantity('') && !isQuantity('1 Mi') && !isQuantity('Mi') && !isQuantity('1mi') && !isQuantity('1.1.1')",
            "!isQuantity('1e99')",
            "quantity('-0.1n') == quantity('-1n') && quantity('1e-99') == quantity('1n') && quantity('0e99').sign() == 0",
            "quantity('+001.50') == quantity('1500m') && quantity('1Ei') == quantity('1152921504606846976')",
            "isQuantity('1e20') && !isQuantity('1e30') && !isQuantity('170141183460469231731687303716')",
            "quantity('1') != quantity('2') && quantity('1k') != quantity('1Ki')",
            "string(quantity('-1.5')) == '-1.5' && string(quantity('100m')) == '0.1'",
            "string(quantity('1Ki')) == '1024' && string(quantity('0')) == '0'",
            // As in Kubernetes, powers of two stop at the largest int.
            "quantity('16Ei') == quantity('9223372036854775807')",
        ],
    );
    all_errors(
        &json!({}),
        &[
            (
                "quantity('x') == quantity('1')",
                "`x` is no quantity as in 100m or 1.5Gi",
            ),
            (
                "quantity('50m').asInteger() == 1",
                "cannot convert value to integer",
            ),
            (
                "quantity('1Pi').asInteger() == 1",
                "cannot convert value to integer",
            ),
        ],
    );
}

#[test]
fn address_and_url_functions_give_their_values() {
    all_true(
        &json!({}),
        &[
            "isIP('10.0.0.1') && isIP('::1') && !isIP('10.0.0.01') && !isIP('10.0.0') && !isIP('::ffff:1.2.3.4')",
            "ip('10.0.0.1').family() == 4 && ip('::1').family() == 6 && ip('127.0.0.1').isLoopback()",
            "ip('0.0.0.0').isUnspecified() && ip('224.0.0.1').isLinkLocalMulticast()",
            "ip('169.254.1.1').isLinkLocalUnicast() && ip('192.168.0.1').isGlobalUnicast()",
            "!ip('255.255.255.255').isGlobalUnicast() && ip('ff02::1').isLinkLocalMulticast()",
            "!ip('0.0.0.0').isGlobalUnicast() && !ip('127.0.0.1').isGlobalUnicast()",
            "!ip('239.1.1.1').isGlobalUnicast() && !ip('169.254.1.1').isGlobalUnicast()",
            "ip.isCanonical('::1') && !ip.isCanonical('0:0::1') && string(ip('0::1')) == '::1'",
            "ip('::1') == ip('0::1') && ip('1.1.1.1') != ip('1.1.1.2')",
            "isCIDR('10.0.0.0/8') && !isCIDR('10.0.0.0/33') && !isCIDR('10.0.0.0') && !isCIDR('10.0.0.0/08')",
            "cidr('10.0.0.0/8').containsIP('10.1.2.3') && !cidr('10.0.0.0/8').containsIP(ip('11.0.0.1'))",
            "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && !cidr('10.1.0.0/16').containsCIDR(cidr('10.0.0.0/8'))",
            "cidr('::/0').containsIP('2001:db8::1') && !cidr('::/0').containsIP('1.1.1.1') && cidr('0.0.0.0/0').containsIP('1.1.1.1')",
            "cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8') && cidr('10.1.2.3/8').ip() == ip('10.1.2.3')",
            "cidr('10.0.0.0/8').prefixLength() == 8 && string(cidr('10.0.0.0/8')) == '10.0.0.0/8'",
            "isURL('https://a.b:80/c?d=e') && isURL('/absolute') && !isURL('relative') && !isURL('') && !isURL('https://a b')",
            "!isURL('http://a:b/') && !isURL('/a%zz') && !isURL('http://[::1')",
            "url('HTTPS://a.b:80/c').getScheme() == 'https' && url('https://a.b:80/c').getHost() == 'a.b:80'",
            "url('https://[::1]:80/').getHostname() == '::1' && url('https://[::1]:80/').getPort() == '80'",
            "url('https://u:p@a.b/').getHost() == 'a.b' && url('/x').getHost() == '' && url('https://a').getPort() == ''",
            "url('https://a/b c'.replace(' ', '%20')).getEscapedPath() == '/b%20c' && url('/é').getEscapedPath() == '/%C3%A9'",
            "url('https://a/?k=1&k=2&b=%41+').getQuery() == {'k': ['1', '2'], 'b': ['A ']}",
            "url('/a') == url('/a') && string(url('/a')) == '/a'",
            "url('HTTP://a') == url('http://a') && url('http://a/é') == url('http://a/%C3%A9') && url('/x#') == url('/x')",
            "url('http://a') != url('http://A') && url('/a') != url('/a?') && url('/%c3%a9') != url('/é')",
            "url('https://a/p?key with spaces=value with spaces').getQuery() == {'key with spaces': ['value with spaces']}",
            "url('https://a/?a=1;b=2&c=3#d').getQuery() == {'c': ['3']}",
            "url('https://a/?a=1&b=2&c=3').getQuery() == {'a': ['1'], 'b': ['2'], 'c': ['3']}",
        ],
    );
    all_errors(
        &json!({}),
        &[
            ("ip('x') == ip('::1')", "`x` is no IP address"),
            (
                "cidr('x') == cidr('::/0')",
                "`x` is no block of addresses as in 10.0.0.0/8",
            ),
            ("cidr('::/0').containsIP('x')", "`x` is no IP address"),
            (
                "url('x') == url('/')",
                "`x` is no absolute URL and no absolute path",
            ),
        ],
    );
}

#[test]
fn regex_and_version_functions_give_their_values() {
    all_true(
        &json!({"p": "^a+$", "v": "v1.2"}),
        &[
            "'aaa'.matches('^a+$') && 'aaa'.matches(object.p) && matches('ba', 'a') && !'b'.matches('a')",
            "'abc 123'.find('[0-9]+') == '123' && 'abc'.find('[0-9]+') == ''",
            "'1 22 333'.findAll('[0-9]+') == ['1', '22', '333'] && '1 22'.findAll('[0-9]+', 1) == ['1']",
            "'1 22'.findAll('[0-9]+', -1).size() == 2 && 'x'.findAll('[0-9]') == [] && '1 2'.findAll('[0-9]', 0) == []",
            "isSemver('1.2.3') && !isSemver('1.2') && !isSemver('v1.2.3') && isSemver(object.v, true)",
            "semver('1.2.3').major() == 1 && semver('1.2.3').minor() == 2 && semver('1.2.3').patch() == 3",
            "semver('1.2.3').isLessThan(semver('1.10.0')) && semver('2.0.0').isGreaterThan(semver('2.0.0-rc.1'))",
            "semver('1.2.3').compareTo(semver('1.2.3')) == 0 && semver('1.0.0+a') == semver('1.0.0+b')",
            "semver('v01.0', true) == semver('1.0.0') && semver('1.02.003-rc.1', true) == semver('1.2.3-rc.1')",
            "semver('00.0.0-a', true) == semver('0.0.0-a') && !isSemver('1.2-a', true) && !isSemver('1+a', true)",
            "!isSemver('1..2', true) && !isSemver('1.2.3.4', true)",
        ],
    );
    all_errors(
        &json!({}),
        &[
            (
                "semver('x') == semver('1.0.0')",
                "no semantic version as in 1.2.3",
            ),
            (
                "semver('1.2-a', true) == semver('1.2.0-a')",
                "no semantic version as in 1.2.3",
            ),
        ],
    );
}

#[test]
fn conversions_and_time_functions_give_their_values() {
    all_true(
        &json!({"at": "2024-02-29T13:14:15.678+01:00"}),
        &[
            "string(1) == '1' && string(1u) == '1' && string(1.5) == '1.5' && string(true) == 'true' && string(b'a') == 'a'",
            "string(1000000.0) == '1e+06' && string(0.00001) == '1e-05' && string(100000.0) == '100000' && string(1.0) == '1'",
            "int('7') == 7 && int(7.9) == 7 && int(-7.9) == -7 && int(7u) == 7 && int(timestamp(9)) == 9",
            "uint(7.9) == 7u && uint(0.0) == 0u",
            "uint(7) == 7u && uint('7') == 7u && double('1.5') == 1.5 && double(1) == 1.0 && bytes('a') == b'a'",
            "bool('true') && !bool('F') && type('a') == string && type(type(1)) == type && type(null) == null_type",
            "type([]) == list && type({}) == map && type(1u) == uint && type(b'') == bytes && type(true) == bool",
            "type(duration('1s')) == google.protobuf.Duration && type(timestamp(0)) == google.protobuf.Timestamp",
            "timestamp(object.at).getFullYear() == 2024 && timestamp(object.at).getMonth() == 1",
            "timestamp(object.at).getDate() == 29 && timestamp(object.at).getDayOfMonth() == 28",
            "timestamp(object.at).getDayOfWeek() == 4 && timestamp(object.at).getDayOfYear() == 59",
            "timestamp(object.at).getHours() == 12 && timestamp(object.at).getHours('+05:30') == 17",
            "timestamp(object.at).getMinutes('-05:30') == 44 && timestamp(object.at).getHours('UTC') == 12",
            "timestamp(object.at).getSeconds() == 15 && timestamp(object.at).getMilliseconds() == 678",
            "string(timestamp('2024-01-02T03:04:05Z')) == '2024-01-02T03:04:05Z'",
            "timestamp('2024-01-02T03:04:05.1234567899Z') == timestamp('2024-01-02T03:04:05.123456789Z')",
            "timestamp('2024-01-02T03:04:05+23:59') < timestamp('2024-01-02T03:04:05-00:00')",
            "timestamp('0001-01-01T00:00:00Z') == timestamp(-62135596800)",
            "int(timestamp('1969-12-31T23:59:59.5Z')) == -1 && int(timestamp('1970-01-01T00:00:01.5Z')) == 1",
            "timestamp(0).getHours('1:00') == 1 && timestamp(0).getMinutes('-0:30') == 30 && timestamp(0).getHours('30:5') == 6",
            "timestamp(0).getMinutes('1:75') == 15 && timestamp(0).getHours('-1:75') == 21 && timestamp(0).getHours('0:-30') == 23",
            "timestamp(0).getHours('') == 0 && timestamp(0).getHours('Local') == 0",
            "double('inf') > 1.0 && double('-Infinity') < 1.0 && double('nan') != double('nan') && int('+5') == 5",
            "duration('1h30m').getMinutes() == 90 && duration('90s').getHours() == 0 && duration('1.5s').getMilliseconds() == 1500",
            "string(duration('1.5s')) == '1.5s' && string(duration('-90m')) == '-5400s' && duration('0') == duration('0s')",
            "string(duration('0')) == '0s' && duration('90s').getSeconds() == 90",
            "duration('1h1m1s1ms1us1ns') > duration('1h1m1s1ms1us') && duration('+1s') == duration('1s')",
            "duration('-9223372036854775808ns') < duration('9223372036854775807ns') && duration('-0') == duration('0s')",
            "duration('.5s1.s') == duration('1500ms') && duration('3µs') == duration('3000ns')",
            "duration('0.1234567891234567891234s') == duration('123456789ns')",
            // A fraction is scaled as a whole, as in Go.
            "duration('0.000000000019m') == duration('1ns')",
        ],
    );
    all_errors(
        &json!({"i": 5}),
        &[
            ("int('x') == 1", "`x` is no int"),
            ("int(1e19) == 1", "integer overflow"),
            ("int(9223372036854775807.0) == 1", "integer overflow"),
            ("int(-9223372036854775808.0) == 1", "integer overflow"),
            ("int(18446744073709551615u) == 1", "integer overflow"),
            ("uint(-1) == 1u", "unsigned integer overflow"),
            ("uint(-1.0) == 1u", "unsigned integer overflow"),
            (
                "uint(18446744073709551615.0) == 1u",
                "unsigned integer overflow",
            ),
            ("bool('yes')", "`yes` is no bool"),
            ("uint('+5') == 5u", "`+5` is no uint"),
            ("double('1e999') == 1.0", "`1e999` is no double"),
            ("double('+nan') == 1.0", "`+nan` is no double"),
            (
                "timestamp(-62135596801) == timestamp(0)",
                "timestamp overflow",
            ),
            (
                "timestamp('0001-01-01T00:00:00Z') - duration('1ns') == timestamp(0)",
                "timestamp overflow",
            ),
            (
                "duration(object.i) == duration('5s')",
                "no such overload: duration(int)",
            ),
            (
                "timestamp(0).getHours('Z') == 0",
                "`Z` is no time zone that is known here: UTC, or an offset as in +02:00",
            ),
            (
                "timestamp(0).getHours(':') == 0",
                "`:` is no time zone that is known here: UTC, or an offset as in +02:00",
            ),
            ("string([1]) == ''", "no such overload: string(list)"),
            (
                "timestamp('2024-01-02') == timestamp(0)",
                "`2024-01-02` is no timestamp as in 2024-01-02T03:04:05Z",
            ),
            (
                "duration('1d') == duration('1s')",
                "`1d` is no duration as in 1h30m",
            ),
            (
                "duration('') == duration('1s')",
                "`` is no duration as in 1h30m",
            ),
            (
                "duration('9999999999h') == duration('1s')",
                "`9999999999h` is no duration as in 1h30m",
            ),
            (
                "timestamp(0).getHours('Europe/Paris') == 1",
                "`Europe/Paris` is no time zone that is known here: UTC, or an offset as in +02:00",
            ),
        ],
    );
}

#[test]
fn timestamps_are_written_as_rfc_3339_says() {
    for text in [
        "2024-06-30T23:59:60Z",
        "2024-01-02T03:04:05+0530",
        "2024-01-02T03:04:05+05",
        "2024-01-02T03:04:05+24:00",
        "2024-01-02T03:04:05+05:60",
        "2024-01-02T03:04:05+01:00:30",
        "2024-01-02T03:04:05+01:00[Europe/Berlin]",
        "2024-01-02T03:04:05.Z",
        "2024-01-02T03:04:05,5Z",
        "2024-01-02T03:04:05.5",
        "2024-01-02T3:04:05Z",
        "2024-01-02 03:04:05Z",
        "2024-01-02T03:04:05Zé",
        "2024-02-30T03:04:05Z",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+01:00",
    ] {
        let error = format!("`{text}` is no timestamp as in 2024-01-02T03:04:05Z");
        all_errors(
            &json!({"t": text}),
            &[("timestamp(object.t) == timestamp(0)", &error)],
        );
    }
}

#[test]
fn unknown_names_and_functions_are_refused_at_compile_time() {
    let error = |source: &str| Program::compile(source, &Names::default()).unwrap_err();
    for source in [
        "authorizer.requestResource.check('get').allowed()",
        "[1].check('get').allowed()",
    ] {
        assert!(
            matches!(error(source), CompileError::Unsupported(_)),
            "{source}"
        );
    }
    for (source, part) in [
        (
            "foo == 1",
            "there is no `foo`; there are object, oldObject, request, namespaceObject",
        ),
        ("foo()", "there is no function foo()"),
        ("'a'.foo()", "there is no function foo()"),
        (
            "startsWith('a', 'b')",
            "startsWith() is called as x.startsWith(), not as startsWith(x)",
        ),
        (
            "'1'.quantity()",
            "quantity() is called as quantity(x), not as x.quantity()",
        ),
        ("'a'.startsWith()", "startsWith() takes 1 arguments"),
        ("'a'.replace('a')", "replace() takes 2 to 3 arguments"),
        ("[1].all(x)", "the macro all() does not take 1 arguments so"),
        ("has(object)", "invalid argument to has() macro"),
        (
            "request == null",
            "`request` stands only before one of its fields",
        ),
        (
            "request.object.spec == 1",
            "`request` has no field `object`",
        ),
        (
            "variables.a == 1",
            "there is no variable `a` before this expression",
        ),
        ("params.a == 1", "there is no `params` without a paramKind"),
        (
            "1 + 'a' == 1",
            "found no matching overload for `_+_` applied to (int, string)",
        ),
        (
            "'a' == 1",
            "found no matching overload for `_==_` applied to (string, int)",
        ),
        (
            "1 && true",
            "found no matching overload for `_&&_` applied to (int)",
        ),
        (
            "!'a'",
            "found no matching overload for `!_` applied to (string)",
        ),
        (
            "1.startsWith('a')",
            "found no matching overload for `startsWith` applied to (int, string)",
        ),
        ("'a'.b == 1", "a string has no fields, so not `b`"),
        ("(1).all(x, true)", "a int has no elements to go through"),
        (
            "a.B{c: 1} == null",
            "no object of a type `a.B` can be made here",
        ),
        ("{1.5: 1} == {}", "a double is no key of a map"),
        ("1 ==", "Syntax error"),
        ("object.spec.a = 1", "1:"),
        ("'a", "1:"),
    ] {
        let found = error(source).to_string();
        assert!(found.contains(part), "{source}: {found}");
    }
}
