#include "api/servant.h"

#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/signals.h"

struct servant {
    pthread_t thread;
    pthread_mutex_t turn;        /* held by the thread whose job is being done */
    pthread_mutex_t lock;        /* of the members below */
    pthread_cond_t changed;
    enum status (*work)(void *context);      /* NULL: there is none */
    void *context;
    struct servant_answer *answer;
    bool ends, unsound;
    struct log_sink log;
    struct guest guest;
    char *data, *cache;
    locale_t locale;
};

static void servant_note(void *context, int level, const char *line)
{
    struct servant *servant = context;
    char *text = servant->answer->text;
    size_t length = strlen(text);
    if (level != LOG_ERROR) {
        if (servant->log.write) servant->log.write(servant->log.context, (enum log_level)level, line);
        return;
    }
    snprintf(text + length, SERVANT_TEXT - length, "%s%s", length ? "\n" : "", line);
}

/* Locks that the job held are its own: nothing in the process waits for them. */
static enum status do_guarded(struct servant *servant)
{
    jmp_buf no_memory;
    if (servant->unsound) return fail(FAILED, "this network ran out of host memory, and cannot be used");
    servant->guest.no_memory = &no_memory;
    if (setjmp(no_memory) == 0) return servant->work(servant->context);
    servant->unsound = true;
    return fail(FAILED, "out of host memory");
}

static void *servant_run(void *context)
{
    struct servant *servant = context;
    uselocale(servant->locale);
    guest_set(&servant->guest);
    pthread_mutex_lock(&servant->lock);
    while (!servant->ends) {
        if (servant->work) {
            pthread_mutex_unlock(&servant->lock);
            servant->answer->status = do_guarded(servant);
            pthread_mutex_lock(&servant->lock);
            servant->work = NULL;
            pthread_cond_broadcast(&servant->changed);
        } else {
            pthread_cond_wait(&servant->changed, &servant->lock);
        }
    }
    pthread_mutex_unlock(&servant->lock);
    uselocale(LC_GLOBAL_LOCALE);
    return NULL;
}

static char *copy_of(const char *text) { return text ? strdup(text) : NULL; }

static void servant_free(struct servant *servant)
{
    if (servant->locale) freelocale(servant->locale);
    free(servant->data);
    free(servant->cache);
    free(servant);
}

struct servant *servant_start(const struct log_sink *log, const char *data, const char *cache)
{
    struct servant *servant = memory_try(1, sizeof *servant);
    if (!servant) return NULL;
    servant->log = *log;
    servant->data = copy_of(data);
    servant->cache = copy_of(cache);
    servant->guest = (struct guest){servant_note, servant, servant->data, servant->cache, NULL};
    servant->locale = newlocale(LC_ALL_MASK, "C", NULL);
    pthread_mutex_init(&servant->turn, NULL);
    pthread_mutex_init(&servant->lock, NULL);
    pthread_cond_init(&servant->changed, NULL);
    bool complete = servant->locale && !data == !servant->data && !cache == !servant->cache;
    if (complete && signals_start_thread(&servant->thread, servant_run, servant) == 0) return servant;
    servant_free(servant);
    return NULL;
}

void servant_do(struct servant *servant, enum status (*work)(void *context), void *context,
                struct servant_answer *answer)
{
    answer->text[0] = '\0';
    pthread_mutex_lock(&servant->turn);
    pthread_mutex_lock(&servant->lock);
    servant->context = context;
    servant->answer = answer;
    servant->work = work;
    pthread_cond_broadcast(&servant->changed);
    while (servant->work) pthread_cond_wait(&servant->changed, &servant->lock);
    pthread_mutex_unlock(&servant->lock);
    pthread_mutex_unlock(&servant->turn);
}

bool servant_is_sound(const struct servant *servant) { return !servant->unsound; }

void servant_end(struct servant *servant)
{
    if (!servant) return;
    pthread_mutex_lock(&servant->lock);
    servant->ends = true;
    pthread_cond_broadcast(&servant->changed);
    pthread_mutex_unlock(&servant->lock);
    pthread_join(servant->thread, NULL);
    pthread_mutex_destroy(&servant->turn);
    pthread_mutex_destroy(&servant->lock);
    pthread_cond_destroy(&servant->changed);
    servant_free(servant);
}
