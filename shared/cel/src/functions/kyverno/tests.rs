use serde_json::json;

use crate::tests::kyverno::{all_errors, all_true, compile_errors};

#[test]
fn or_value_of_a_plain_value_is_that_value() {
    all_true(
        &json!({"a": [1], "n": null}),
        &[
            "object.a.orValue([]) == [1]",
            "object.n.orValue(1) == null",
            "object.?x.orValue(1) == 1 && object.?n.orValue(1) == null",
            "object.a.orValue([]).size() == 1 && 'a'.orValue('b') == 'a'",
        ],
    );
    // Kyverno's function evaluates both, unlike that of optionals in Kubernetes.
    all_errors(
        &json!({"a": 1}),
        &[
            ("object.x.orValue(1) == 1", "no such key: x"),
            ("object.?a.orValue(object.x) == 1", "no such key: x"),
        ],
    );
}

#[test]
fn encodings_go_there_and_back() {
    all_true(
        &json!({"text": "é~/"}),
        &[
            "base64.encode(b'hello') == 'aGVsbG8=' && base64.encode(b'') == ''",
            "base64.decode('aGVsbG8=') == b'hello' && base64.decode('aGVsbG8') == b'hello'",
            "base64.decode('aGVs\\nbG8=') == b'hello' && base64.decode('') == b''",
            // What is left of the last digit does not count.
            "base64.decode('YR==') == b'a' && base64.decode('YR') == b'a' && base64.decode('YWJ=') == b'ab'",
            "base64.decode('Y\\nR=\\n=\\n') == b'a'",
            "string(base64.decode(base64.encode(bytes(object.text)))) == object.text",
            "gzip.decompress(gzip.compress(object.text)) == object.text",
            "gzip.decompress(gzip.compress(b'ab')) == 'ab' && gzip.compress('a') == gzip.compress('a')",
            "jsonpatch.escapeKey('a/b~c') == 'a~1b~0c' && jsonpatch.escapeKey('~1') == '~01'",
        ],
    );
    all_errors(
        &json!({}),
        &[
            (
                "base64.decode('a') == b''",
                "it is not base64: Invalid input length: 1",
            ),
            (
                "base64.decode('*aaa') == b''",
                "it is not base64: Invalid symbol 42, offset 0.",
            ),
            (
                "base64.encode(dyn('a')) == ''",
                "no such overload: base64.encode(string)",
            ),
            (
                "gzip.decompress(b'ab') == ''",
                "it is not gzip: unexpected end of file",
            ),
            (
                "gzip.decompress(gzip.compress(b'\\xff')) == ''",
                "what is compressed is not a text in UTF-8",
            ),
            (
                "gzip.compress(dyn(1)) == b''",
                "no such overload: gzip.compress(int)",
            ),
            (
                "jsonpatch.escapeKey(dyn(1)) == ''",
                "no such overload: jsonpatch.escapeKey(int)",
            ),
        ],
    );
}

#[test]
fn digests_are_hexadecimal() {
    let sha256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    all_true(
        &json!({"sha256": sha256}),
        &[
            "md5('hello') == '5d41402abc4b2a76b9719d911017c592' && hash.md5('') == md5('')",
            "sha1('hello') == 'aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d'",
            "hash.sha1('a') == sha1('a') && hash.sha256('a') == sha256('a')",
            "sha256('hello') == object.sha256",
        ],
    );
    all_errors(
        &json!({}),
        &[
            ("md5(dyn(1)) == ''", "no such overload: md5(int)"),
            (
                "hash.sha256(dyn(b'a')) == ''",
                "no such overload: hash.sha256(bytes)",
            ),
        ],
    );
}

#[test]
fn json_and_yaml_are_read_and_written() {
    all_true(
        &json!({"a": [1, 2.5, null, {"b": true}]}),
        &[
            "json.marshal(object) == '{\"a\":[1,2.5,null,{\"b\":true}]}'",
            "json.unmarshal(json.marshal(object)) == object",
            "type(json.unmarshal('1')) == int && json.unmarshal('1.0') == 1.0",
            "json.unmarshal('18446744073709551615') > 9223372036854775807",
            "json.marshal(1) == '1' && json.marshal(2u) == '2' && json.marshal('a') == '\"a\"'",
            "json.marshal('<&') == '\"\\\\u003c\\\\u0026\"' && json.marshal([2.0, 0.5]) == '[2,0.5]'",
            "json.marshal(b'hello') == '\"aGVsbG8=\"' && json.marshal({}) == '{}'",
            "json.marshal(Object{spec: Object.spec{a: null}}) == '{\"spec\":{\"a\":null}}'",
            "yaml.parse('a: 0644\\nb: [yes]') == {'a': 420, 'b': [true]}",
            "yaml.parse('') == null && yaml.parse('a: 1\\n---\\nb: 2') == {'a': 1}",
        ],
    );
    all_errors(
        &json!({}),
        &[
            (
                "json.unmarshal('{') == 1",
                "it is not JSON: EOF while parsing an object at line 1 column 1",
            ),
            (
                "json.unmarshal(dyn(1)) == 1",
                "no such overload: json.unmarshal(int)",
            ),
            (
                "json.marshal(9223372036854775808u) == ''",
                "integer overflow",
            ),
            (
                "json.marshal(timestamp(0)) == ''",
                "a google.protobuf.Timestamp is nothing that JSON has",
            ),
            (
                "json.marshal([optional.none()]) == ''",
                "a optional_type is nothing that JSON has",
            ),
            ("json.marshal(int) == ''", "a type is nothing that JSON has"),
            (
                "json.marshal(0.0 / 0.0) == ''",
                "JSON has neither NaN nor infinities",
            ),
            ("json.marshal({1: 'a'}) == ''", "a int is no key in JSON"),
            (
                "yaml.parse(dyn(1)) == 1",
                "no such overload: yaml.parse(int)",
            ),
        ],
    );
}

#[test]
fn certificates_are_decoded() {
    let object = json!({"pem": CERTIFICATE});
    all_true(
        &object,
        &[
            "x509.decode(object.pem).Issuer.CommonName == 'cert-manager' || has(x509.decode(object.pem).NotAfter)",
            "has(x509.decode(object.pem).PublicKey.N) && x509.decode(object.pem).Version == 3",
        ],
    );
    all_errors(
        &object,
        &[
            (
                "x509.decode('text').Version == 3",
                "the text is no PEM block",
            ),
            (
                "x509.decode(dyn(1)).Version == 3",
                "no such overload: x509.decode(int)",
            ),
        ],
    );
}

const CERTIFICATE: &str =
    include_str!("../../../../functions/src/functions/certificates/testdata/certificate.pem");

#[test]
fn image_references_are_taken_apart() {
    let digest = format!("sha256:{}", "1f".repeat(32));
    all_true(
        &json!({"digest": digest}),
        &[
            "image('nginx').registry() == 'index.docker.io' && image('nginx').tag() == 'latest'",
            "image('nginx').repository() == 'library/nginx' && image('a/b').repository() == 'a/b'",
            "image('docker.io/nginx').registry() == 'index.docker.io'",
            "parseImageReference('ghcr.io/team/app:v1').registry() == 'ghcr.io'",
            "image('reg:5000/app:v1').repository() == 'app' && image('reg:5000/app:v1').identifier() == 'v1'",
            "image('reg:5000/app@' + object.digest).tag() == ''",
            "image('a@' + object.digest).digest() == object.digest && image('a').digest() == ''",
            "image('a@' + object.digest).identifier() == object.digest",
            "image('a:v1@' + object.digest).identifier() == 'v1@' + object.digest",
            "image('a:v1@' + object.digest).identifierWithSeparator() == '@' + object.digest",
            "image('a').identifierWithSeparator() == ':latest' && image('a:v1').identifierWithSeparator() == ':v1'",
            "image('index.docker.io/nginx').repository() == 'library/nginx'",
            "image('a@' + object.digest).containsDigest() && !image('a:v1').containsDigest()",
            "'%s'.format([image('r.io/a:v1')]) == 'r.io/a:v1'",
            "'%s'.format([image('r.io/a@' + object.digest)]) == 'r.io/a@' + object.digest",
            "isImage('nginx:1.2') && !isImage('a b') && !isImage('')",
            "image('nginx') == image('docker.io/nginx:latest') && image('a') != image('b')",
        ],
    );
    all_errors(
        &json!({}),
        &[
            ("image('a b').tag() == ''", "`a b` is no image"),
            ("isImage(dyn(1))", "no such overload: isImage(int)"),
            ("dyn('a').tag() == ''", "no such overload: tag(string)"),
            (
                "dyn('a').containsDigest()",
                "no such overload: containsDigest(string)",
            ),
            (
                "string(image('a')) == ''",
                "no such overload: string(kyverno.Image)",
            ),
        ],
    );
}

#[test]
fn service_accounts_are_taken_apart() {
    all_true(
        &json!({}),
        &[
            "parseServiceAccount('system:serviceaccount:ns:robot').Name == 'robot'",
            "user.parseServiceAccount('system:serviceaccount:ns:robot').Namespace == 'ns'",
            "parseServiceAccount('system:serviceaccount:ns:a:b').Name == 'a:b'",
            "parseServiceAccount('admin') == {'Name': '', 'Namespace': ''}",
            "parseServiceAccount('system:serviceaccount:ns').Namespace == ''",
        ],
    );
    all_errors(
        &json!({}),
        &[
            (
                "parseServiceAccount(dyn(1)).Name == ''",
                "no such overload: parseServiceAccount(int)",
            ),
            (
                "user.parseServiceAccount('a').name == ''",
                "no such key: name",
            ),
        ],
    );
}

#[test]
fn lists_of_objects_become_a_map() {
    all_true(
        &json!({"l": [{"n": "a", "v": 1}, {"n": "b", "v": 2}]}),
        &[
            "listObjToMap(object.l, object.l, 'n', 'v') == {'a': 1, 'b': 2}",
            "transform.listObjToMap(object.l, [{'x': 3}, {}], 'n', 'x') == {'a': 3, 'b': null}",
            "listObjToMap([{'n': 'a'}, {'n': 'a'}], object.l, 'n', 'v') == {'a': 2}",
            "listObjToMap([], [], 'n', 'v') == {}",
            "cel.bind(l, lists.range(20).map(i, {'n': string(i)}), listObjToMap(l, l, 'n', 'n').size() == 20)",
        ],
    );
    all_errors(
        &json!({"l": [{"n": "a", "v": 1}]}),
        &[
            (
                "listObjToMap(object.l, [], 'n', 'v') == {}",
                "listObjToMap() takes lists of one length, not of 1 and 0 elements",
            ),
            (
                "listObjToMap(object.l, object.l, 'v', 'v') == {}",
                "the key `v` of listObjToMap() is no string",
            ),
            (
                "listObjToMap([1], object.l, 'n', 'v') == {}",
                "listObjToMap() takes lists of maps",
            ),
            (
                "listObjToMap(object.l, object.l, 'n', dyn(1)) == {}",
                "no such overload: listObjToMap(list, list, string, int)",
            ),
        ],
    );
}

#[test]
fn mathematics_is_that_of_cel() {
    all_true(
        &json!({}),
        &[
            "math.greatest(1, 2.5, 2u) == 2.5 && math.greatest([1, 3]) == 3 && math.greatest(-1) == -1",
            "math.least(1, 2.5, 0u) == 0u && math.least([1.0, 3.0]) == 1.0 && type(math.least(1, 1.0)) == int",
            "math.ceil(1.2) == 2.0 && math.floor(-1.2) == -2.0 && math.trunc(-1.7) == -1.0",
            "math.round(-1.5) == -2.0 && math.round(1.234, 2) == 1.23 && math.round(1.5, 0) == 2.0",
            "math.abs(-1) == 1 && math.abs(-1.5) == 1.5 && math.abs(1u) == 1u",
            "math.sign(-3) == -1 && math.sign(0u) == 0u && math.sign(2.5) == 1.0 && math.sign(-0.0) == 0.0",
            "math.isInf(1.0 / 0.0) && math.isNaN(0.0 / 0.0) && math.isFinite(1.0)",
            "!math.isInf(1.0) && !math.isNaN(1.0) && !math.isFinite(0.0 / 0.0)",
            "math.bitAnd(6, 3) == 2 && math.bitOr(6u, 3u) == 7u && math.bitXor(-1, 1) == -2",
            "math.bitNot(1) == -2 && math.bitNot(0u) == 18446744073709551615u",
            "math.bitShiftLeft(1, 3) == 8 && math.bitShiftLeft(1u, 64) == 0u",
            "math.bitShiftLeft(5, 0) == 5 && math.bitShiftRight(5u, 0) == 5u",
            "math.bitShiftRight(-1024, 3) == 2305843009213693824 && math.bitShiftRight(8u, 3) == 1u",
            "math.sqrt(81) == 9.0 && math.sqrt(2.25) == 1.5 && math.isNaN(math.sqrt(-1.0)) && math.sqrt(4u) == 2.0",
        ],
    );
    all_errors(
        &json!({"t": "a", "i": 1}),
        &[
            ("math.greatest([]) == 1", "math.greatest() of an empty list"),
            (
                "math.greatest(1, double('NaN')) == 1",
                "NaN values cannot be ordered",
            ),
            (
                "math.least([double('NaN'), 1.0]) == 1",
                "NaN values cannot be ordered",
            ),
            (
                "math.greatest(1, object.t) == 1",
                "no such overload: math.greatest(string)",
            ),
            (
                "math.least(['a']) == 1",
                "no such overload: math.least(string)",
            ),
            ("math.abs(-9223372036854775808) == 1", "integer overflow"),
            (
                "math.bitShiftLeft(1, -1) == 1",
                "math.bitShiftLeft() takes no negative offset",
            ),
            (
                "math.bitAnd(1, 1u) == 1",
                "no such overload: math.bitAnd(int, uint)",
            ),
            (
                "math.ceil(object.i) == 1.0",
                "no such overload: math.ceil(int)",
            ),
            (
                "math.round(1.5, -1) == 1.0",
                "math.round() takes no negative number of places",
            ),
            (
                "math.sign(object.t) == 1",
                "no such overload: math.sign(string)",
            ),
            (
                "math.sqrt(object.t) == 1.0",
                "no such overload: math.sqrt(string)",
            ),
            ("math.isNaN(object.i)", "no such overload: math.isNaN(int)"),
            (
                "math.bitNot(object.t) == 1",
                "no such overload: math.bitNot(string)",
            ),
        ],
    );
}

#[test]
fn regular_expressions_extract_and_replace() {
    all_true(
        &json!({"p": "(l+)"}),
        &[
            r"regex.replace('hello world', 'o', '0') == 'hell0 w0rld'",
            r"regex.replace('hello', object.p, '[\\1]') == 'he[ll]o'",
            r"regex.replace('a-b', '(\\w)-(\\w)', '\\2-\\1') == 'b-a'",
            r"regex.replace('aaa', 'a', 'b', 2) == 'bba' && regex.replace('aaa', 'a', 'b', 0) == 'aaa'",
            r"regex.replace('aaa', 'a', 'b', -1) == 'bbb' && regex.replace('a', 'a', '\\\\') == '\\'",
            r"regex.replace('ab', '', '-') == '-a-b-' && regex.replace('ab', '(x)?b', '<\\1>') == 'a<>'",
            r"regex.extract('item-A1', 'item-(\\w+)') == optional.of('A1')",
            r"regex.extract('hello', 'l+').value() == 'll' && !regex.extract('a', 'b').hasValue()",
            r"regex.extract('ab', 'a(x)?').hasValue() == false",
            r"regex.extractAll('id:1, id:22', 'id:(\\d+)') == ['1', '22']",
            r"regex.extractAll('id:1, id:22', '\\d+') == ['1', '22'] && regex.extractAll('a', 'b') == []",
        ],
    );
    all_errors(
        &json!({"p": "("}),
        &[
            (
                r"regex.replace('a', '(a)', '\\2') == ''",
                "the replacement names group 2, and the regular expression has 1",
            ),
            (
                r"regex.replace('a', 'a', '\\') == ''",
                "a replacement ends in a backslash",
            ),
            (
                r"regex.replace('a', 'a', '\\x') == ''",
                "a digit or a backslash follows a backslash in a replacement",
            ),
            (
                "regex.extract('a', '(a)(b)').hasValue()",
                "the regular expression has more than one group",
            ),
            (
                "regex.extractAll('a', '(a)(b)') == []",
                "the regular expression has more than one group",
            ),
            (
                "regex.extract(dyn(1), 'a').hasValue()",
                "no such overload: regex.extract(int, string)",
            ),
            (
                "regex.extract('a', object.p).hasValue()",
                "not a regular expression: unclosed group",
            ),
        ],
    );
    compile_errors(&[(
        "regex.extract('a', '(').hasValue()",
        "not a regular expression: unclosed group",
    )]);
}

#[test]
fn times_are_truncated_and_become_schedules() {
    all_true(
        &json!({}),
        &[
            "time.truncate(timestamp('2024-01-02T03:04:05Z'), duration('1h')) == timestamp('2024-01-02T03:00:00Z')",
            "time.truncate(timestamp('2024-01-02T03:04:05Z'), duration('0s')) == timestamp('2024-01-02T03:04:05Z')",
            "time.toCron(timestamp('2024-01-02T03:04:05Z')) == '4 3 2 1 2'",
        ],
    );
    all_errors(
        &json!({}),
        &[
            (
                "time.now() == timestamp(0)",
                "the time is not available where this is evaluated",
            ),
            (
                "random() == ''",
                "random numbers are not available where this is evaluated",
            ),
            (
                "random.random('a') == ''",
                "random numbers are not available where this is evaluated",
            ),
            (
                "time.toCron(dyn(1)) == ''",
                "no such overload: time.toCron(int)",
            ),
            (
                "time.truncate(timestamp(0), dyn(1)) == timestamp(0)",
                "no such overload: time.truncate(google.protobuf.Timestamp, int)",
            ),
        ],
    );
}
