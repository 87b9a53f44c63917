/* SPDX-License-Identifier: MIT
 *
 * tls.c: certificates that can change while connections are open.
 *
 * Each new session gets the current certificate and keeps it. Sessions borrow it, and GnuTLS does not count them, so
 * older certificates are kept until the server closes. That is some kilobytes for each renewal.
 *
 * Source: GnuTLS manual, gnutls_credentials_set: replaces the credentials of the same kind; they have to live as long
 * as the session.
 */
#include "server/http/tls.h"

#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/os.h"

#define PEM_BYTES ((size_t)1 << 20)

static int read_pem(struct buf *out, const char *path, struct qn_error *e)
{
    int r = os_read_file(out, path, PEM_BYTES, e);

    if (r == 0 && (out->len == 0 || memchr(out->data, '\0', out->len)))
        r = error_set(e, QN_EDATA, "'%s' is not PEM", path);
    return r;
}

int tls_cert_new(struct tls_cert **out, const char *cert_path, const char *key_path, struct qn_error *e)
{
    struct buf cert = {0}, key = {0};
    struct tls_cert *c = mem_calloc(1, sizeof *c);
    int r = c ? read_pem(&cert, cert_path, e) : error_nomem(e, "a certificate", sizeof *c);

    if (r == 0) r = read_pem(&key, key_path, e);
    if (r == 0 && gnutls_certificate_allocate_credentials(&c->cred)) r = error_nomem(e, "a certificate", cert.len);
    if (r == 0) {
        gnutls_datum_t pem = {cert.data, (unsigned)cert.len}, key_pem = {key.data, (unsigned)key.len};
        int why = gnutls_certificate_set_x509_key_mem(c->cred, &pem, &key_pem, GNUTLS_X509_FMT_PEM);
        if (why < 0)
            r = error_set(e, QN_EDATA, "TLS cannot use '%s' and '%s': %s", cert_path, key_path, gnutls_strerror(why));
        c->hash = hash_bytes(cert.data, cert.len, hash_bytes(key.data, key.len, 0));
    }
    if (key.data) explicit_bzero(key.data, key.len);
    buf_deinit(&cert);
    buf_deinit(&key);
    if (r < 0) {
        tls_cert_free(c);
        return r;
    }
    *out = c;
    return 0;
}

void tls_cert_free(struct tls_cert *c)
{
    while (c) {
        struct tls_cert *older = c->older;
        if (c->cred) gnutls_certificate_free_credentials(c->cred);
        mem_free(c);
        c = older;
    }
}

void tls_cert_use(gnutls_session_t session, const struct tls_cert *c)
{
    gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, c->cred);
}
