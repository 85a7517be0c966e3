/* The one subscriber and its callbacks. Callbacks of the runtime's functions, and of the driver's that the virtual
 * cuBLAS would call, and of what becomes of graphs; others can be enabled and never come. */
#include "vgpu/vgpu_cupti.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char handles[64]; /* the address of one is a subscriber; a former subscriber's is not used again at once */
static CUpti_SubscriberHandle subscriber;
static unsigned subscribed_before;
static char name[CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN];
static _Atomic(CUpti_CallbackFunc) function;
static void *user;
static _Atomic uint64_t running; /* callbacks under way, all threads */
static struct vgpu_cupti_set enabled[CUPTI_CB_DOMAIN_SIZE];

static CUpti_CallbackDomain domains[] = {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_CB_DOMAIN_RUNTIME_API,
                                         CUPTI_CB_DOMAIN_RESOURCE,   CUPTI_CB_DOMAIN_SYNCHRONIZE,
                                         CUPTI_CB_DOMAIN_NVTX,       CUPTI_CB_DOMAIN_STATE};
enum { DOMAINS = sizeof domains / sizeof *domains };

CUptiResult cuptiSupportedDomains(size_t *count, CUpti_DomainTable *table) {
    if (!count || !table) return CUPTI_ERROR_INVALID_PARAMETER;
    *count = DOMAINS;
    *table = domains;
    return CUPTI_SUCCESS;
}

static CUptiResult subscribe(CUpti_SubscriberHandle *out, CUpti_CallbackFunc f, void *data,
                             const CUpti_SubscriberParams *p) {
    pthread_mutex_lock(&lock);
    CUptiResult e = subscriber ? CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED : CUPTI_SUCCESS;
    if (!e) {
        subscriber = (CUpti_SubscriberHandle)&handles[subscribed_before++ % sizeof handles];
        snprintf(name, sizeof name, "CUPTI for %.*s", CUPTI_SUBSCRIBER_NAME_MAX_LEN,
                 p && p->subscriberName ? p->subscriberName : "");
        user = data;
        atomic_store(&function, f);
        *out = subscriber;
    } else if (p && p->oldSubscriberName && p->oldSubscriberSize) {
        snprintf(p->oldSubscriberName, p->oldSubscriberSize, "%s", name);
    }
    pthread_mutex_unlock(&lock);
    return e;
}

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *out, CUpti_CallbackFunc f, void *data) {
    return out ? subscribe(out, f, data, NULL) : CUPTI_ERROR_INVALID_PARAMETER;
}

CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle *out, CUpti_CallbackFunc f, void *data,
                              CUpti_SubscriberParams *p) {
    if (!out || (p && p->structSize < CUpti_SubscriberParams_STRUCT_SIZE)) return CUPTI_ERROR_INVALID_PARAMETER;
    return subscribe(out, f, data, p);
}

/* When it returns, no callback is under way but those that it was called from. */
void vgpu_cupti_unsubscribe(void) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < DOMAINS; i++)
        vgpu_cupti_put_all(&enabled[domains[i]], vgpu_cupti_domain_size(domains[i]), false);
    atomic_store(&function, NULL);
    subscriber = NULL;
    pthread_mutex_unlock(&lock);
    vgpu_cupti_listen();
    while (atomic_load(&running) > vgpu_cupti_calls) sched_yield();
}

static bool is_subscriber(CUpti_SubscriberHandle s) {
    pthread_mutex_lock(&lock);
    bool is = s && s == subscriber;
    pthread_mutex_unlock(&lock);
    return is;
}

CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle s) {
    if (!is_subscriber(s)) return CUPTI_ERROR_INVALID_PARAMETER;
    vgpu_cupti_unsubscribe();
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetCallbackState(uint32_t *enable, CUpti_SubscriberHandle s, CUpti_CallbackDomain domain,
                                  CUpti_CallbackId cbid) {
    if (!enable || !is_subscriber(s) || !cbid || cbid >= vgpu_cupti_domain_size(domain))
        return CUPTI_ERROR_INVALID_PARAMETER;
    *enable = vgpu_cupti_has(&enabled[domain], cbid);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle s, CUpti_CallbackDomain domain,
                                CUpti_CallbackId cbid) {
    if (!is_subscriber(s) || !cbid || cbid >= vgpu_cupti_domain_size(domain)) return CUPTI_ERROR_INVALID_PARAMETER;
    vgpu_cupti_put(&enabled[domain], cbid, enable != 0);
    vgpu_cupti_listen();
    return CUPTI_SUCCESS;
}

CUptiResult cuptiEnableDomain(uint32_t enable, CUpti_SubscriberHandle s, CUpti_CallbackDomain domain) {
    if (!is_subscriber(s) || !vgpu_cupti_domain_size(domain)) return CUPTI_ERROR_INVALID_PARAMETER;
    vgpu_cupti_put_all(&enabled[domain], vgpu_cupti_domain_size(domain), enable != 0);
    vgpu_cupti_listen();
    return CUPTI_SUCCESS;
}

CUptiResult cuptiEnableAllDomains(uint32_t enable, CUpti_SubscriberHandle s) {
    CUptiResult e = CUPTI_SUCCESS;
    for (int i = 0; i < DOMAINS && !e; i++) e = cuptiEnableDomain(enable, s, domains[i]);
    return e;
}

CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t cbid, const char **out) {
    if (!out) return CUPTI_ERROR_INVALID_PARAMETER;
    *out = vgpu_cupti_callback_name(domain, cbid);
    return *out ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}

bool vgpu_cupti_has_callbacks(void) {
    return vgpu_cupti_any(&enabled[CUPTI_CB_DOMAIN_RUNTIME_API]) ||
           vgpu_cupti_any(&enabled[CUPTI_CB_DOMAIN_DRIVER_API]) || vgpu_cupti_any(&enabled[CUPTI_CB_DOMAIN_RESOURCE]);
}

static void tell(struct vgpu_api_call *call, CUpti_CallbackDomain domain, CUpti_CallbackFunc f, int *result) {
    CUpti_CallbackData data = {
        .callbackSite = result ? CUPTI_API_EXIT : CUPTI_API_ENTER,
        .functionName = call->name,
        .functionParams = call->params,
        .functionReturnValue = result,
        .symbolName = call->symbol,
        .context = vgpu_cupti_context(vgpu_current()),
        .contextUid = vgpu_cupti_context_id(vgpu_current()),
        .correlationData = &call->data,
        .correlationId = call->correlation,
    };
    vgpu_cupti_in_client++;
    f(user, domain, call->cbid, &data);
    vgpu_cupti_in_client--;
}

bool vgpu_cupti_wants_resource(CUpti_CallbackIdResource cbid) {
    return vgpu_cupti_has(&enabled[CUPTI_CB_DOMAIN_RESOURCE], cbid);
}

void vgpu_cupti_call_back_resource(CUpti_CallbackIdResource cbid, void *descriptor) {
    CUpti_ResourceData data = {.context = vgpu_cupti_context(vgpu_current()), .resourceDescriptor = descriptor};
    if (!vgpu_cupti_wants_resource(cbid)) return;
    atomic_fetch_add(&running, 1);
    vgpu_cupti_calls++;
    CUpti_CallbackFunc f = atomic_load(&function);
    vgpu_cupti_in_client++;
    if (f) f(user, CUPTI_CB_DOMAIN_RESOURCE, cbid, &data);
    vgpu_cupti_in_client--;
    vgpu_cupti_calls--;
    atomic_fetch_sub(&running, 1);
}

/* Callbacks come in pairs: one that is enabled in the middle of a call is not heard at its end. */
void vgpu_cupti_call_back(struct vgpu_api_call *call, int *result) {
    CUpti_CallbackDomain domain = call->driver ? CUPTI_CB_DOMAIN_DRIVER_API : CUPTI_CB_DOMAIN_RUNTIME_API;
    if (!vgpu_cupti_has(&enabled[domain], call->cbid) || (result && !call->called_back)) return;
    atomic_fetch_add(&running, 1);
    vgpu_cupti_calls++;
    CUpti_CallbackFunc f = atomic_load(&function);
    if (f) {
        call->called_back = 1;
        tell(call, domain, f, result);
    }
    vgpu_cupti_calls--;
    atomic_fetch_sub(&running, 1);
}
