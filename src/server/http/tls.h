/* SPDX-License-Identifier: MIT
 *
 * tls.h: the certificate of a server and its key, read from two PEM files.
 */
#ifndef QUERN_SERVER_TLS_H
#define QUERN_SERVER_TLS_H

#include <stdint.h>

#include <gnutls/gnutls.h>

#include "base/error.h"

struct tls_cert {
    gnutls_certificate_credentials_t cred;
    uint64_t hash; /* of both files */
    struct tls_cert *older;
};

/* Reads both files. Refuses a file that is not PEM, and a key that does not belong to the certificate. */
int tls_cert_new(struct tls_cert **out, const char *cert_path, const char *key_path, struct qn_error *e);
/* Frees this certificate and the older ones; NULL is fine. Call it after the end of the last session that uses one of
 * them. */
void tls_cert_free(struct tls_cert *c);
/* Call it before the handshake; the certificate is borrowed until the session's end. */
void tls_cert_use(gnutls_session_t session, const struct tls_cert *c);

#endif
